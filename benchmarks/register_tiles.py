"""What random programs of each kind of sketch reach on one core of a CPU with 16 vector registers.

    python benchmarks/register_tiles.py [--network resnet50] [--tasks 8] [--programs 5]

Of the tasks of a network with the most FLOPs, each convolution in every way, so many programs are
drawn of MetaSchedule's sketches, of ours with the vectors of AVX-512, and of ours with this CPU's
own. The packaged model picks one more of each kind without a measurement, as `--trials 0` does. All
run on one thread in turn, warm, and the least CPU time of a run counts: other processes disturb it
less than the time of the clock. Shares are of one core's peak by the probe; Winograd's can pass 1,
since FLOPs are those of the direct computation. Spills are memory accesses by the stack pointer in
the assembly's block with the most multiplications, which are counted beside them.
"""

import argparse
import json
import math
import os
import re
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

os.environ["TVM_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import tvm
from generations import largest
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.probe import local_profile
from hetfeat.models.packaged import packaged_model
from hetfeat.models.registry import load_model
from hetfeat.records import Program, Task
from hetfeat.schedules.design_space import TaskSpace, as_candidate, replay
from hetfeat.schedules.registers import VectorUnit
from hetfeat.search.evolution import Evolution
from hetfeat.transfer.schedule_library import ScheduleLibrary, warm_starts_of
from hetfeat.tune.guidance import ModelGuidance
from hetfeat.workloads.relax import NetworkTask, as_target

AVX512 = VectorUnit(16)
"""What TVM's `llvm_get_vector_width` says of every x86 CPU."""
BLOCK = re.compile(r"\n(?=\S+:)")
COLUMNS = (
    "task",
    "sketches",
    "fastest, median",
    "picked",
    "loops of the fastest",
    "spills, multiplications",
)


class Built:
    """A program, compiled in this process.

    Args:
        module: Module of the task.
        trace: Trace of the program.
        target: Target to compile for.
    """

    def __init__(self, module: tvm.IRModule, trace: str, target: tvm.target.Target) -> None:
        candidate = as_candidate(replay(module, trace))
        scheduled = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(candidate.sch.mod)
        executable = tvm.compile(scheduled, target)
        self.trace, self.best_s = trace, math.inf
        self._assembly = executable.mod.inspect_source("asm")
        self._main = executable.jit()["main"]
        rng = np.random.default_rng(0)
        shapes = [[int(extent) for extent in a.shape] for a in candidate.args_info]
        self._arguments = [tvm.runtime.tensor(rng.random(s).astype(np.float32)) for s in shapes]

    def run(self) -> None:
        """Runs twice: the first brings its arguments to the caches."""
        for _ in range(2):
            started_ns = time.thread_time_ns()
            self._main(*self._arguments)
            self.best_s = min(self.best_s, (time.thread_time_ns() - started_ns) / 1e9)

    def spills(self) -> tuple[int, int]:
        """Accesses of the stack, and multiplications, where there are most of these."""
        counted = [
            (len(re.findall(r"\bvf?n?m(?:add\w+|ul)ps", part)), len(re.findall(r"\(%r[sb]p", part)))
            for part in BLOCK.split(self._assembly)
        ]
        multiplications, accesses = max(counted)
        return accesses, multiplications


def loops_of(trace: str) -> str:
    """Extents that a program drew, by loop."""
    return " ".join(
        "x".join(map(str, value)) if isinstance(value, list) else str(value)
        for _, value in json.loads(trace)[1]
    )


class Space:
    """Programs of a task in this process, as a search's proposer.

    Args:
        space: Design space of the task.
    """

    def __init__(self, space: TaskSpace) -> None:
        self._space = space

    def sample(self, task: Task, count: int, seed: int) -> list[Program]:
        return [Program(task, *found) for found in self._space.sample(count, seed)]

    def vary(self, task: Task, parents: list[str], count: int, seed: int) -> list[Program]:
        return [Program(task, *found) for found in self._space.vary(parents, count, seed)]

    def apply(self, task: Task, traces: list[str]) -> list[Program]:
        return [Program(task, *found) for found in self._space.apply(traces)]


def spaces_of(found: NetworkTask, target: Any, cache_line_bytes: int) -> dict[str, TaskSpace]:
    """Design spaces of a task, each of one kind of sketch."""
    kinds = ("MetaSchedule's", "ours for AVX-512", "ours")
    theirs, wide, own = (TaskSpace(found.module, target, cache_line_bytes) for _ in kinds)
    theirs._unit = wide._unit = AVX512
    generated = theirs._context.generate_design_space()
    theirs.__dict__["_sketches"] = [sketch.trace for sketch in generated]
    wide.__dict__["_sketches"] = [sketch.trace for sketch in wide._custom_sketches()]
    spaces = zip(kinds, (theirs, wide, own), strict=True)
    return {kind: space for kind, space in spaces if space._sketches}


class Kind:
    """Programs of one kind of sketch, drawn, picked and built.

    Args:
        found: Task of the network.
        space: Design space of that kind.
        target: Target to compile for.
        count: Number of programs drawn.
        guidance: What picks one more.
        library: Records that it may carry over.
    """

    def __init__(
        self,
        found: NetworkTask,
        space: TaskSpace,
        target: Any,
        count: int,
        guidance: ModelGuidance,
        library: ScheduleLibrary,
    ) -> None:
        task, proposer = found.task, Space(space)
        warm_starts = partial(warm_starts_of, library, task, proposer)
        asked = guidance.for_task(task)
        search = Evolution(
            task, proposer, 0, guidance=asked, warm_starts=warm_starts, unit=space._unit
        )
        pick = search.pick()
        assert pick is not None
        drawn = [Built(found.module, trace, target) for trace, _ in space.sample(count, 0)]
        self.programs = [*drawn, Built(found.module, pick.trace, target)]

    def row(self, flops: float, peak_gflops: float) -> list[str]:
        """Cells of the table."""
        *drawn, pick = [flops / one.best_s / 1e9 / peak_gflops for one in self.programs]
        fastest = self.programs[drawn.index(max(drawn))]
        return [
            f"{max(drawn):.2f}, {statistics.median(drawn):.2f}",
            f"{pick:.2f}",
            loops_of(fastest.trace),
            "{}, {}".format(*fastest.spills()),
        ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--network", default="resnet50")
    options.add_argument("--tasks", type=int, default=8)
    options.add_argument("--programs", type=int, default=5)
    options.add_argument("--rounds", type=int, default=10)
    given = options.parse_args()
    profile = local_profile()
    target = as_target({**profile.target, "num-cores": 1})
    tasks = largest(given.network, profile, given.tasks)
    packaged = packaged_model(profile.family)
    assert packaged is not None
    guidance = ModelGuidance(load_model(packaged.folder), profile, 0)
    store = RecordStore.open(packaged_store())
    library = ScheduleLibrary.of(store, profile.name, [found.task for found in tasks])
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    for found in tasks:
        kinds = {
            name: Kind(found, space, target, given.programs, guidance, library)
            for name, space in spaces_of(found, target, profile.cache_line_bytes).items()
        }
        for _ in range(given.rounds):
            for kind in kinds.values():
                for program in kind.programs:
                    program.run()
        shapes = " ".join("x".join(map(str, shape)) for shape in found.task.shapes[:2])
        for name, kind in kinds.items():
            cells = kind.row(found.task.flops, profile.peak_gflops / profile.threads)
            row = [f"{found.task.operator} {shapes}", name, *cells]
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
