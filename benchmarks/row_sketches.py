"""Kernels that reduce rows, as softmax does, or turn a tensor: MetaSchedule's programs beside ours.

    python benchmarks/row_sketches.py NETWORK... [--kind transpositions] [--device avx2.yaml]
                                                 [--programs 15]

Of each task of the networks that our sketch is for, the fastest and the median of MetaSchedule's
programs and the one of ours are told, in milliseconds, on random data. Tasks of one operator and
the same shapes are told of once. Nothing else may run.
"""

import argparse
import contextlib
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from concatenations import timed

from hetfeat.devices.probe import find_profile
from hetfeat.schedules.trace import is_custom_sketch


def is_of(kind: str, task: Any, target: Any) -> bool:
    """Whether a sketch of ours is for a task."""
    from tvm.s_tir import Schedule

    from hetfeat.schedules.design_space import REFUSALS, vector_unit
    from hetfeat.schedules.row_wise import is_row_wise
    from hetfeat.schedules.transposed import is_transposition

    asked = {"rows": is_row_wise, "transpositions": is_transposition}[kind]
    with contextlib.suppress(*REFUSALS):
        return asked(Schedule(task.module), vector_unit(target).narrowest)
    return False


def row(task: Any, target: Any, line_bytes: int, programs: int) -> str:
    from hetfeat.schedules.design_space import TaskSpace, replay

    ((own, _),) = TaskSpace(task.module, target, line_bytes).sample(1, seed=0)
    drawn = TaskSpace(task.module, target, line_bytes, all_sketches=True).sample(programs, seed=0)
    theirs = [
        timed(replay(task.module, trace).mod, target)[0] / 1e3
        for trace, _ in drawn
        if not is_custom_sketch(trace)
    ]
    ours = timed(replay(task.module, own).mod, target)[0] / 1e3
    best = f"{len(theirs)}, {min(theirs):.3f}, {statistics.median(theirs):.3f}"
    shape = "x".join(map(str, task.task.shapes[0]))
    return f"| {task.task.operator} {shape} | {best} | {ours:.3f} | {ours / min(theirs):.2f} |"


def main() -> None:
    from hetfeat.workloads.networks import load_network
    from hetfeat.workloads.relax import as_target, extract_tasks, import_network, lower

    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("networks", nargs="+")
    options.add_argument("--kind", default="rows", choices=("rows", "transpositions"))
    options.add_argument("--device", default="local", help="this machine, or a part of it")
    options.add_argument("--programs", type=int, default=15)
    given = options.parse_args()
    profile = find_profile(given.device)
    target = as_target(profile.target)
    heads = ["network", "kernel", "MetaSchedule's: programs, fastest, median, ms", "ours", "ratio"]
    print(f"| {' | '.join(heads)} |")
    print("| --- " * len(heads) + "|")
    for name in given.networks:
        known = set()
        for task in extract_tasks(lower(import_network(load_network(name)), target), target):
            key = (task.task.operator, task.task.shapes)
            if key not in known and is_of(given.kind, task, target):
                told = row(task, target, profile.cache_line_bytes, given.programs)
                print(f"| {Path(name).stem} {told}", flush=True)
            known.add(key)


if __name__ == "__main__":
    main()
