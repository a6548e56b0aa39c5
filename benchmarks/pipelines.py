"""Where the seconds of building a program go, and whether cheaper builds rank programs alike.

    python benchmarks/pipelines.py [--network resnet50] [--tasks 8] [--programs 6] --out FILE

Of tasks spread over a network, in every way of its convolutions, random programs are drawn. Each is
built by every pipeline of LLVM of `PIPELINES`, its parts timed apart, then run by one thread, the
builds in turn. Seconds are of the processor, and a latency is the least of many runs: the machine
may be busy. FILE keeps a line a program; those that are in it are not made again. Prints Markdown.
"""

import argparse
import json
import os
import statistics
import sys
import time
from itertools import combinations
from pathlib import Path
from typing import Any

os.environ["TVM_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import tvm
from search import read_lines
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from hetfeat.devices.probe import local_profile
from hetfeat.schedules.design_space import TaskSpace, as_candidate, replay
from hetfeat.workloads.convolution_variants import extract_variant_tasks
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.relax import as_target, import_network, in_layout
from hetfeat.workloads.winograd import TRANSFORMS

PIPELINES: dict[str, dict[str, Any]] = {
    "3": {},
    "2": {"opt-level": 2},
    "1": {"opt-level": 1},
    "0": {"opt-level": 0},
}
"""What is added to the target, by name; the first is what everything is built by."""
PARTS = ("replay", "lower", "passes", "machine code")
STEADY_RUNS, LEAST_S = 9, 0.004


def lowered(module: tvm.IRModule, target: Any) -> tvm.IRModule:
    """What LLVM gets, its loops unrolled."""
    lower, _, _ = tvm.tirx.get_default_tir_pipeline(target)
    with target:
        return lower(tvm.tirx.transform.BindTarget(target.with_host(target))(module))


def statements(module: tvm.IRModule) -> int:
    """Lines of a lowered program, which are mostly statements."""
    return sum(len(function.script().splitlines()) for function in module.functions.values())


def built(module: tvm.IRModule, target: Any) -> tuple[Any, dict[str, float]]:
    """A program's function, and seconds of each part but its replay."""
    seconds = {}
    started = time.process_time()
    lowered(module, target)
    seconds["lower"] = time.process_time() - started
    started = time.process_time()
    executable = tvm.compile(module, target)
    seconds["passes"] = time.process_time() - started - seconds["lower"]
    started = time.process_time()
    library = executable.jit()
    library["main"]
    seconds["machine code"] = time.process_time() - started
    return library, seconds


def least_s(library: Any, arrays: list[Any], runs: int) -> float:
    """Seconds of the fastest of some runs."""
    timer = library.time_evaluator("main", tvm.cpu(), number=1, repeat=runs)
    return float(min(timer(*arrays).results))


def line_of(task: Any, trace: str, target: dict[str, Any]) -> dict[str, Any]:
    """Everything about one program."""
    started = time.process_time()
    candidate = as_candidate(replay(task.module, trace))
    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(candidate.sch.mod)
    replay_s = time.process_time() - started
    found: dict[str, Any] = {"operator": task.task.operator, "task": task.task.hash, "trace": trace}
    found["statements"] = statements(lowered(module, as_target(target)))
    libraries = {}
    for name, added in PIPELINES.items():
        libraries[name], seconds = built(module, as_target(target | added))
        found[name] = {"replay": replay_s, **seconds}
    shapes = [(tuple(int(n) for n in a.shape), str(a.dtype)) for a in candidate.args_info]
    rng = np.random.default_rng(0)
    arrays = [tvm.runtime.tensor(rng.random(shape).astype(dtype)) for shape, dtype in shapes]
    first_s = least_s(libraries["3"], arrays, 1)
    runs = max(2, min(50, int(LEAST_S / first_s)))
    for _ in range(STEADY_RUNS):
        for name, library in libraries.items():
            seconds_now = least_s(library, arrays, runs)
            found[name]["run"] = min(seconds_now, found[name].get("run", seconds_now))
    return found


def agreement(lines: list[dict[str, Any]], name: str, nearest: float = 0.03) -> float:
    """Share of pairs of a task that a pipeline orders as the first does; near ones left out."""
    agree: list[bool] = []
    for one, other in combinations(lines, 2):
        if one["task"] != other["task"]:
            continue
        full, cheap = (np.log(one[n]["run"] / other[n]["run"]) for n in ("3", name))
        if abs(full) > nearest:
            agree.append(bool(full * cheap > 0))
    return statistics.mean(agree) if agree else float("nan")


def summary(lines: list[dict[str, Any]]) -> str:
    """A row for each operator and pipeline."""
    head = ["operator", "programs", "opt-level", *(f"{part}, s" for part in PARTS), "building, s"]
    head += ["times as long to run", "10 % to 90 %", "pairs ordered alike"]
    rows = [head, ["---"] * len(head)]
    for operator in sorted({line["operator"] for line in lines}):
        some = [line for line in lines if line["operator"] == operator]
        for name in PIPELINES:
            parts = [statistics.mean(line[name][part] for line in some) for part in PARTS]
            ratios = np.array([line[name]["run"] / line["3"]["run"] for line in some])
            low, high = np.quantile(ratios, (0.1, 0.9))
            row = [operator, str(len(some)), name, *(f"{s:.3f}" for s in (*parts, sum(parts)))]
            row += [f"{np.median(ratios):.3f}", f"{low:.3f} to {high:.3f}"]
            rows.append([*row, f"{agreement(some, name):.3f}"])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def by_size(lines: list[dict[str, Any]], groups: int = 4) -> str:
    """A row for each of some groups of programs, by the number of their statements."""
    rows = ["| statements | programs | replay and lower, s | LLVM, s | of building |"]
    rows.append("| --- | --- | --- | --- | --- |")
    ordered = sorted(lines, key=lambda line: line["statements"])
    for some in np.array_split(np.array(ordered, object), groups):
        first = [line["3"] for line in some]
        ours = statistics.mean(one["replay"] + one["lower"] for one in first)
        llvm = statistics.mean(one["passes"] + one["machine code"] for one in first)
        sizes = f"{some[0]['statements']} to {some[-1]['statements']}"
        rows.append(
            f"| {sizes} | {len(some)} | {ours:.3f} | {llvm:.3f} | {llvm / (ours + llvm):.2f} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="resnet50")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--programs", type=int, default=6)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    profile = local_profile()
    target = dict(profile.target)
    prepared = in_layout(import_network(load_network(given.network)), as_target(target))
    tasks = extract_variant_tasks(prepared, as_target(target), TRANSFORMS)
    done = {(line["task"], line["trace"]) for line in read_lines(given.out)}
    for task in tasks[:: max(1, len(tasks) // given.tasks)]:
        space = TaskSpace(task.module, as_target(target), profile.cache_line_bytes)
        for trace, _ in space.sample(given.programs, 0):
            if (task.task.hash, trace) not in done:
                with given.out.open("a") as file:
                    file.write(json.dumps(line_of(task, trace, target)) + "\n")
    lines = read_lines(given.out)
    print(summary(lines), by_size(lines), sep="\n\n")


if __name__ == "__main__":
    main()
