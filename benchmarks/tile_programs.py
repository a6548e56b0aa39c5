"""Programs in AMX's tiles: the fastest drawn, the median, and the one picked without measuring.

    python benchmarks/tile_programs.py QUANTISED.onnx [--programs 16]

Of each task of a quantised network whose sums stay in tiles, so many programs are drawn, and the
packaged model picks one more, as `--trials 0` does. All run on all cores, warm, in this process.
`benchmarks/tile_instructions.c` times the instructions alone. Nothing else may run.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from register_tiles import Space

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.probe import local_profile
from hetfeat.models.packaged import packaged_model
from hetfeat.models.registry import load_model
from hetfeat.records import Program
from hetfeat.schedules.design_space import TaskSpace, as_candidate, replay
from hetfeat.schedules.registers import unit_of
from hetfeat.search.evolution import Evolution
from hetfeat.transfer.schedule_library import ScheduleLibrary, warm_starts_of
from hetfeat.tune.guidance import ModelGuidance
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.relax import as_target, extract_tasks, import_network, lower

HEADS = ("task", "programs", "fastest, ms", "median of it", "picked, of it")


def timed_ms(module: Any, trace: str, target: Any, seconds: float = 0.08) -> float:
    """Median of the runs of a program in so many seconds, its arguments in the caches."""
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    candidate = as_candidate(replay(module, trace))
    scheduled = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(candidate.sch.mod)
    run = tvm.compile(scheduled, target).jit()["main"]
    rng = np.random.default_rng(0)
    arguments = [
        tvm.runtime.tensor(
            (100 * rng.random([int(n) for n in given.shape])).astype(str(given.dtype))
        )
        for given in candidate.args_info
    ]
    for _ in range(3):
        run(*arguments)
    taken, end = list[float](), time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        run(*arguments)
        taken.append(time.perf_counter() - began)
    return 1e3 * statistics.median(taken)


def programs_of(found: Any, space: TaskSpace, count: int, pick: Any) -> Iterator[Program]:
    """Programs drawn, and at last the one that is picked."""
    proposer = Space(space)
    yield from proposer.sample(found.task, count, 0)
    yield pick(found.task, proposer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", help="quantised network, a file of ONNX")
    parser.add_argument("--programs", type=int, default=16)
    given = parser.parse_args()
    profile = local_profile()
    os.environ["TVM_NUM_THREADS"] = str(profile.threads)
    target, unit = as_target(profile.target), unit_of(profile)
    tasks = extract_tasks(lower(import_network(load_network(given.network)), target), target)
    guidance = ModelGuidance(load_model(packaged_model(profile.family).folder), profile, 0)
    store = RecordStore.open(packaged_store())
    library = ScheduleLibrary.of(store, profile.name, [found.task for found in tasks])

    def pick(task: Any, proposer: Space) -> Program:
        warm_starts = partial(warm_starts_of, library, task, proposer)
        asked = guidance.for_task(task)
        search = Evolution(task, proposer, 0, guidance=asked, warm_starts=warm_starts, unit=unit)
        return search.pick()

    print(f"| {' | '.join(HEADS)} |\n|{' --- |' * len(HEADS)}")
    for found in tasks:
        space = TaskSpace(found.module, target, profile.cache_line_bytes, full_rate=unit.full_rate)
        if not any("hetfeat_tiles" in str(sketch) for sketch in space._sketches):
            continue
        programs = programs_of(found, space, given.programs, pick)
        *drawn, picked = [timed_ms(found.module, one.trace, target) for one in programs]
        fastest = min(*drawn, picked)
        shapes = " ".join("x".join(map(str, shape)) for shape in found.task.shapes[:2])
        shares = f"{statistics.median(drawn) / fastest:.2f} | {picked / fastest:.2f}"
        print(
            f"| {found.task.operator} {shapes} | {len(drawn)} | {fastest:.3f} | {shares} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
