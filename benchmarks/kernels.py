"""A bundle's kernels inside the network: time, achieved GFLOP/s and GB/s, and the roofline.

    python benchmarks/kernels.py BUNDLE [--network resnet50] [--rounds 60]

Each kernel is timed by TVM's instrumentation while the network runs, first quartile of the rounds;
`warm` is what it took while tuning. The roofline of a kernel is the larger of its FLOP at the
probe's peak and its arguments' bytes at the probe's bandwidth, of the algorithm that is used.
Nothing else may run.
"""

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from hetfeat.deploy import runtime
from hetfeat.devices.probe import local_profile
from hetfeat.records import Task
from hetfeat.workloads.convolution_variants import extract_variant_tasks, lower_fastest
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.winograd import TRANSFORMS

BYTES = 4


def kernels_of(network: str, manifest: dict, target) -> dict[str, Task]:
    """The task of each kernel of the network as it was compiled, by name."""
    import tvm

    from hetfeat.workloads.relax import describe, import_network, in_layout

    prepared = in_layout(import_network(load_network(network)), target)
    tasks = extract_variant_tasks(prepared, target, TRANSFORMS)
    taken = {task["task"] for task in manifest["tasks"]}
    cost_s = {task.task.hash: 1.0 if task.task.hash in taken else math.inf for task in tasks}
    lowered = lower_fastest(prepared, target, tasks, cost_s)
    return {
        name.name_hint: describe(tvm.IRModule({"main": f.with_attr("global_symbol", "main")}))
        for name, f in lowered.functions_items()
        if isinstance(f, tvm.tirx.PrimFunc)
    }


def timed(bundle: Path, manifest: dict, rounds: int) -> tuple[list[tuple[str, float]], float]:
    """Each step of a run and its seconds, and the seconds of a run without instrumentation."""
    import tvm
    from tvm import relax

    loaded = runtime.LoadedBundle(bundle)
    inputs = [np.load(bundle / f"sample_input_{i}.npy") for i in range(len(manifest["inputs"]))]
    run = loaded.prepare(inputs)
    whole = []
    for _ in range(rounds):
        started = time.perf_counter()
        run()
        whole.append(time.perf_counter() - started)

    library = tvm.runtime.load_module(str(bundle / manifest["variants"][0]["library"]))
    machine = relax.VirtualMachine(library, tvm.cpu())
    steps: list[tuple[str, float]] = []
    began = [0.0]

    def instrument(function, name, before, result, *arguments):
        now = time.perf_counter()
        if before:
            began[0] = now
        else:
            steps.append((name, now - began[0]))

    machine.set_instrument(instrument)
    arguments = [tvm.runtime.tensor(value) for value in inputs] + loaded._variants[0][2]
    runs = []
    for _ in range(rounds):
        steps.clear()
        machine["main"](*arguments)
        runs.append(list(steps))
    quartile = np.percentile([[s for _, s in run] for run in runs], 25, axis=0)
    names = [name for name, _ in runs[0]]
    return list(zip(names, quartile.tolist(), strict=True)), float(np.percentile(whole, 25))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--network", help="by default the manifest's")
    parser.add_argument("--rounds", type=int, default=60)
    given = parser.parse_args()
    profile = local_profile()
    os.environ["TVM_NUM_THREADS"] = str(profile.threads)
    from hetfeat.workloads.relax import as_target

    manifest = json.loads((given.bundle / "bundle.json").read_text())
    network = given.network or manifest["request"]["network"]
    tasks = kernels_of(network, manifest, as_target(profile.target))
    warm_s = {task["task"]: task["latency_s"] for task in manifest["tasks"]}
    steps, whole_s = timed(given.bundle, manifest, given.rounds)

    total: dict[str, list[float]] = {}
    of: dict[str, Task] = {}
    others_s = 0.0
    for name, seconds in steps:
        known = name.removesuffix("_prepacked")
        task = tasks.get(known) or tasks.get(known[:-1])  # what was laid out anew ends in a 1
        if task is None:
            others_s += seconds
        else:
            total.setdefault(task.hash, []).append(seconds)
            of[task.hash] = task
    columns = ("kernel", "shapes", "runs", "ms in all", "warm, each", "in the network, each")
    columns = (*columns, "GFLOP/s", "GB/s", "roofline, each")
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    bound_s = 0.0
    for key, seconds in sorted(total.items(), key=lambda item: -sum(item[1])):
        task, each = of[key], sum(seconds) / len(seconds)
        size = BYTES * sum(math.prod(shape) for shape in task.shapes)
        roof = max(task.flops / 1e9 / profile.peak_gflops, size / 1e9 / profile.bandwidth_gb_s)
        bound_s += roof * len(seconds)
        shapes = " ".join("x".join(map(str, shape)) for shape in task.shapes[:2])
        warm = f"{1e3 * warm_s[key]:.3f}" if warm_s.get(key) else "-"
        print(
            f"| {task.operator} | {shapes} | {len(seconds)} | {1e3 * sum(seconds):.2f} | {warm}"
            f" | {1e3 * each:.3f} | {task.flops / each / 1e9:.0f} | {size / each / 1e9:.1f}"
            f" | {1e3 * roof:.3f} |"
        )
    kernels_s = sum(map(sum, total.values()))
    warm_all = sum(len(found) * (warm_s.get(key) or 0.0) for key, found in total.items())
    print(
        f"\nthe network {1e3 * whole_s:.2f} ms, its kernels {1e3 * kernels_s:.2f}, warm "
        f"{1e3 * warm_all:.2f}, roofline {1e3 * bound_s:.2f}; other steps, instrumented, "
        f"{1e3 * others_s:.2f}"
    )


if __name__ == "__main__":
    main()
