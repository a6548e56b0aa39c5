"""Programs measured a second: our persistent children against TVM's LocalBuilder and LocalRunner.

    python benchmarks/measuring.py [--networks resnet18,mobilenet_v3_small] [--blocks 4]

Both measure the same programs, in blocks of 64 drawn over all tasks, alternately and in one run,
with equal threads, equal repeats and each with as many builders as there are threads. Then the
rate of collecting whole networks, proposing included, as `hetfeat collect` does it. Prints
Markdown; docs/experiments holds its last run.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from hetfeat.dataset.store import RecordStore
from hetfeat.devices.probe import local_profile
from hetfeat.devices.profile import DeviceProfile
from hetfeat.measure.local import LocalMeasurer
from hetfeat.records import Program
from hetfeat.tune.collect import Plan, collect
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.relax import (
    NetworkTask,
    as_target,
    extract_tasks,
    import_network,
    lower,
    save_workload,
)

BLOCK = 64
PROGRAMS_PER_TASK = 16


def network_tasks(name: str, profile: DeviceProfile) -> list[NetworkTask]:
    target = as_target(profile.target)
    return extract_tasks(lower(import_network(load_network(name)), target), target)


def drawn(measurer: LocalMeasurer, tasks: Sequence[NetworkTask], count: int) -> list[Program]:
    """Programs of all tasks, shuffled."""
    rng = random.Random(0)
    share = -(-count // len(tasks)) + 1
    programs = [p for task in tasks for p in measurer.sample(task.task, share, seed=1)]
    rng.shuffle(programs)
    return programs[:count]


def stock_seconds(
    programs: Sequence[Program], tasks: Sequence[NetworkTask], profile: DeviceProfile
) -> tuple[float, int]:
    """Wall time and failures of the stock builder and runner."""
    import tvm.s_tir.meta_schedule as ms

    from hetfeat.schedules.design_space import as_candidate, replay

    modules = {task.task.hash: task.module for task in tasks}
    target = as_target(profile.target)
    candidates = [as_candidate(replay(modules[p.task.hash], p.trace)) for p in programs]
    builder = ms.builder.LocalBuilder(max_workers=profile.threads)
    config = ms.runner.EvaluatorConfig(number=1, repeat=3, min_repeat_ms=10)
    runner = ms.runner.LocalRunner(evaluator_config=config)
    started = time.perf_counter()
    built = builder.build([ms.builder.BuilderInput(c.sch.mod, target) for c in candidates])
    failed = sum(result.error_msg is not None for result in built)
    inputs = [
        ms.runner.RunnerInput(result.artifact_path, "cpu", candidate.args_info)
        for result, candidate in zip(built, candidates, strict=True)
        if result.error_msg is None
    ]
    ran = [future.result() for future in runner.run(inputs)]
    failed += sum(result.error_msg is not None for result in ran)
    return time.perf_counter() - started, failed


def our_seconds(programs: Sequence[Program], measurer: LocalMeasurer) -> tuple[float, int]:
    """Wall time and failures of our measurer."""
    started = time.perf_counter()
    done = measurer.measure(programs)
    return time.perf_counter() - started, sum(m.latency_s is None for m in done)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default="resnet18,mobilenet_v3_small")
    parser.add_argument("--blocks", type=int, default=4)
    options = parser.parse_args()
    profile = local_profile()
    os.environ["TVM_NUM_THREADS"] = str(profile.threads)
    names = options.networks.split(",")
    tasks = [task for name in names for task in network_tasks(name, profile)]
    rows: list[str] = []
    with LocalMeasurer(profile) as measurer:
        for task in tasks:
            measurer.add_task(task.task, save_workload(task.module))
        programs = drawn(measurer, tasks, BLOCK * options.blocks)
        for number in range(options.blocks):
            block = programs[number * BLOCK : (number + 1) * BLOCK]
            ours = stock = (0.0, 0)
            for engine in ("ours", "stock") if number % 2 == 0 else ("stock", "ours"):
                if engine == "ours":
                    ours = our_seconds(block, measurer)
                else:
                    stock = stock_seconds(block, tasks, profile)
            rows.append(
                f"| {number + 1} | {len(block) / ours[0]:.2f} | {ours[1]} "
                f"| {len(block) / stock[0]:.2f} | {stock[1]} | {stock[0] / ours[0]:.1f} |"
            )
            sys.stderr.write(rows[-1] + "\n")
        with tempfile.TemporaryDirectory() as folder:
            store = RecordStore.create(Path(folder) / "records")
            plan = Plan(PROGRAMS_PER_TASK)
            *_, progress = collect(store, [measurer], [t.task for t in tasks], plan)
    lines = [
        f"{profile.source}, {profile.threads} threads, {time.strftime('%Y-%m-%d')}",
        f"Networks: {', '.join(names)}",
        "",
        "| block | ours, programs/s | failed | stock, programs/s | failed | ratio |",
        "| --- | --- | --- | --- | --- | --- |",
        *rows,
        "",
        f"Collecting {PROGRAMS_PER_TASK} programs a task over {progress.tasks} tasks, proposing "
        f"included: {progress.programs} programs in {progress.seconds:.0f} s, "
        f"{progress.programs / progress.seconds:.2f} a second, {progress.failed} failed.",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
