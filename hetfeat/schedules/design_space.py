"""A task's design space in TVM: sampling it, varying programs, replaying traces."""

import contextlib
import itertools
import json
import random
from collections.abc import Iterator
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import tvm
import tvm.s_tir.meta_schedule as ms
from tvm.s_tir.schedule import Schedule
from tvm.s_tir.schedule import Trace as TvmTrace
from tvm.sym import detect_linear_equation
from tvm.target.codegen import target_has_features

from hetfeat.devices.nvidia import has_tensor_cores
from hetfeat.devices.target import vector_isa
from hetfeat.features.per_store import StoreFeatures
from hetfeat.schedules import (
    blocked,
    concatenated,
    dot_products,
    row_wise,
    tiles,
    transposed,
    winograd,
)
from hetfeat.schedules import trace as traces
from hetfeat.schedules.intrinsics import load_for_cpu, load_for_tensor_cores
from hetfeat.schedules.registers import FLOAT32_BYTES, VectorUnit
from hetfeat.schedules.shared_memory import Read, SharedMemory
from hetfeat.schedules.tensor_cores import (
    TensorCores,
    multiplies_halves,
    space_generators,
    with_opt_in_memory,
)
from hetfeat.schedules.threads import first_kept, keeps_to_threads
from hetfeat.schedules.tile_intrinsics import register_named

ISAS_OF_FEW_REGISTERS = ("avx2", "sse42", "scalar")
"""Vector instructions with 16 registers; others have 32."""

REFUSALS = (RuntimeError, ValueError, TypeError, IndexError)
"""What TVM raises for a trace that does not apply: its own errors derive from the first."""


class TaskSpace:
    """The schedules that MetaSchedule's rules allow for one task on one target.

    Args:
        module: Module of the task.
        target: Target of TVM to compile for.
        cache_line_bytes: Cache line of the device in bytes.
        full_rate: See `VectorUnit`; False by default.
        tries_per_program: Draws allowed per program wanted; 4 by default: small tasks have fewer
            distinct programs than are asked.
        repeats_in_a_row: Random draws of known programs in a row, after which all are held to be
            known; 16 by default.
        all_sketches: Whether MetaSchedule's sketches stay where they are known to be slower than
            ours; false by default.
    """

    def __init__(
        self,
        module: tvm.IRModule,
        target: tvm.target.Target,
        cache_line_bytes: int,
        *,
        full_rate: bool = False,
        tries_per_program: int = 4,
        repeats_in_a_row: int = 16,
        all_sketches: bool = False,
    ) -> None:
        self._tries_per_program, self._repeats_in_a_row = tries_per_program, repeats_in_a_row
        self._all_sketches = all_sketches
        load_for_cpu(target.attrs.get("mtriple"))
        self.module = module
        generators = [_rules(target)]
        if has_tensor_cores(dict(target.export())) and multiplies_halves(self._unscheduled()):
            target, generators = with_opt_in_memory(target), space_generators()
        self._contexts = [
            ms.TuneContext(
                module, target=target, space_generator=rules, num_threads=1, rand_state=1
            )
            for rules in generators
        ]
        self._context = self._contexts[0]
        self._features = StoreFeatures(self._context, cache_line_bytes)
        self._gpu = target.kind.name == "cuda"
        self._unit = vector_unit(target, full_rate)
        if self._gpu:
            limit_bytes = int(target.attrs["max_shared_memory_per_block"])
            reads_of = cache(partial(_reads_of, self._unscheduled()))
            self._shared_memory = SharedMemory(limit_bytes, reads_of)
            self._tensor_cores = TensorCores(limit_bytes)

    @cached_property
    def _sketches(self) -> list[TvmTrace]:
        own = list(self._custom_sketches())
        _, alone = self._own_sketches()
        if not own or self._all_sketches or not alone:
            found = [context.generate_design_space() for context in self._contexts]
            own = [*itertools.chain.from_iterable(found), *own]
        return [schedule.trace for schedule in own]

    @cached_property
    def _fewest_sums(self) -> int:
        """See `VectorUnit.fewest_of`."""
        given = [json.loads(traces.dump(sketch.as_json())) for sketch in self._sketches]
        return self._unit.fewest_of(given)

    def _own_sketches(self) -> tuple[tuple[blocked.Sketch, ...], bool]:
        """Our sketches for this kernel, and whether MetaSchedule's are left out beside them.

        With few registers next to none of their programs fit. Of products of two quantised tensors,
        depthwise convolutions, concatenations, rows and transpositions ours were faster than the
        fastest of theirs
        (docs/experiments/2026-11-29-sketch-of-products-of-tensors.md,
        docs/experiments/2026-11-29-sketches-of-depthwise-convolutions.md,
        docs/experiments/2026-11-29-sketch-of-concatenations.md,
        docs/experiments/2026-11-29-sketch-of-rows.md,
        docs/experiments/2026-11-30-sketch-of-transpositions.md).
        """
        target, kernel = self._context.target, self._unscheduled()
        few, narrowest = self._unit.is_small, self._unit.narrowest
        if target.kind.name != "llvm":
            return (), False
        if winograd.is_winograd(kernel):
            return winograd.sketches(kernel, self._unit), few
        if in_tiles := tiles.sketches(kernel, target):
            return in_tiles, True
        if instruction := dot_products.instruction_for(kernel, target):
            return dot_products.sketches(instruction), few or instruction.is_alone
        if blocked.fills_registers(kernel, narrowest):
            return blocked.sketches(kernel, self._unit), few
        if blocked.is_depthwise(kernel, narrowest):
            return blocked.DEPTHWISE, True
        if row_wise.is_row_wise(kernel, narrowest):
            return row_wise.SKETCHES, True
        with contextlib.suppress(*REFUSALS):  # one of several outputs, which nothing is inlined in
            if concatenated.is_concatenation(kernel):
                return concatenated.SKETCHES, True
            if transposed.is_transposition(kernel, narrowest):
                return transposed.SKETCHES, True
        return (), False

    def _custom_sketches(self) -> Iterator[Schedule]:
        """The kernel as each of our sketches schedules it, decisions drawn."""
        sketches, _ = self._own_sketches()
        for sketch in sketches:
            with contextlib.suppress(*REFUSALS):  # what follows a sum may not be for them
                schedule = self._unscheduled()
                sketch(schedule, self._unit)
                yield schedule

    def _unscheduled(self) -> Schedule:
        return Schedule(self.module, seed=1, debug_mask="none")

    def features(self, trace: str) -> np.ndarray[Any, Any] | None:
        """Per-store features of a recorded program; None where its trace does not replay."""
        try:
            return self._features(as_candidate(replay(self.module, trace)))
        except Exception:  # of another version or target, or no trace at all
            return None

    def sample(self, count: int, seed: int) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        """Up to `count` distinct random programs: trace, and features float32 [stores, 164].

        Of each sketch alike, so that a few programs show all of them. Where nothing is to be
        decided there is one program of each.
        """
        rng = random.Random(seed)
        if not any(sketch.decisions for sketch in self._sketches):
            count = min(count, len(self._sketches))
        sketches = itertools.cycle(rng.sample(self._sketches, len(self._sketches)))
        drawn = set[str]()

        def draw() -> Schedule | None:
            sketch = next(sketches)
            text = traces.dump(sketch.as_json())
            given = json.loads(text)
            if self._gpu or (self._unit.limits(given) and traces.is_custom_sketch(text)):
                anew = partial(traces.drawn_anew, given, rng)
                trace = first_kept(anew, self._keeps)
                decided = traces.dump(trace)
                if not self._gpu and decided in drawn:  # applied, it would be the same program
                    return None
                drawn.add(decided)
                return self._applied(trace, rng)
            schedule = self._blank(rng)
            TvmTrace(sketch.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
            return schedule

        yield from self._distinct(draw, count, set())

    def vary(
        self, parents: list[str], count: int, seed: int
    ) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        """Up to `count` distinct programs, each one change (or a few) away from a parent."""
        rng = random.Random(seed)

        def changed() -> traces.Trace | None:
            trace: traces.Trace | None = json.loads(rng.choice(parents))
            for _ in range(rng.choice((1, 1, 2, 3))):
                trace = trace and traces.vary(trace, rng)
            return trace

        def draw() -> Schedule | None:
            return self._applied(first_kept(changed, self._keeps), rng)

        yield from self._distinct(draw, count, set(parents))

    def apply(self, given: list[str]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        """The programs of traces without post-processing; those that do not apply are left out.

        What was fast elsewhere may have fewer sums than what is drawn.
        """
        rng = random.Random(0)
        remaining = iter(given)
        fewest = min(self._fewest_sums, self._unit.fewest_sums)

        def draw() -> Schedule | None:
            trace = json.loads(next(remaining, "null"))
            fits = trace and self._unit.holds(trace, fewest)
            return self._applied(trace if fits else None, rng)

        yield from self._distinct(draw, len(given), set(), most_repeats=len(given))

    def _keeps(self, trace: traces.Trace) -> bool:
        """False of what TVM would refuse or spill, as far as decisions alone tell."""
        if self._gpu:
            room = self._shared_memory.holds(trace) and self._tensor_cores.holds(trace)
            return room and keeps_to_threads(trace)
        return self._unit.holds(trace, self._fewest_sums)

    def _applied(self, trace: traces.Trace | None, rng: random.Random) -> Schedule | None:
        if trace is None:
            return None
        schedule = self._blank(rng)
        TvmTrace.apply_json_to_schedule(trace, schedule)
        return schedule

    def _blank(self, rng: random.Random) -> Schedule:
        return Schedule(self.module, seed=rng.randrange(1, 2**31 - 1), debug_mask="none")

    def _distinct(
        self, draw: Any, count: int, seen: set[str], most_repeats: int | None = None
    ) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        most = self._repeats_in_a_row if most_repeats is None else most_repeats
        found = repeats = 0
        for _ in range(self._tries_per_program * count):
            if found == count or repeats == most:
                return
            try:
                schedule = draw()
                if schedule is None or not self._finish(schedule):
                    continue
                trace = traces.dump(schedule.trace.as_json())
                if trace in seen:
                    repeats += 1
                    continue
                features = self._features(as_candidate(schedule))
            except REFUSALS:
                continue  # a combination of decisions that the primitives refuse
            seen.add(trace)
            found, repeats = found + 1, 0
            yield trace, features

    def _finish(self, schedule: Schedule) -> bool:
        schedule.enter_postproc()
        return all(step.apply(schedule) for step in self._context.space_generator.postprocs)


def _reads_of(kernel: Schedule, block: str) -> list[Read | None]:
    """See `SharedMemory`."""
    found: list[Read | None] = []
    scheduled = kernel.get(kernel.get_sblock(block))
    loops = [axis.var for axis in scheduled.iter_vars]
    for operand in scheduled.reads:
        rows = [detect_linear_equation(index.min, loops) for index in operand.region]
        strides = [[int(stride) for stride in row[: len(loops)]] for row in rows]
        itemsize = tvm.DataType(operand.source.dtype).itemsize
        found.append(Read(np.array(strides), itemsize) if all(strides) else None)
    return found


def _rules(target: tvm.target.Target) -> ms.SpaceGenerator:
    """MetaSchedule's rules for a target; for NVIDIA GPUs those of their lanes.

    It would take those of tensor cores for newer ones, which multiply no float32. For AVX-512 it
    would take a product of integers that saturates, or one that this LLVM refuses.
    """
    kind = "cuda" if target.kind.name == "cuda" else "from-target"
    if kind != "cuda" and target_has_features("avx512f", target):
        kind = "llvm"
    return ms.space_generator.PostOrderApply(sch_rules=kind, postprocs=kind, mutator_probs=kind)


def vector_unit(target: tvm.target.Target, full_rate: bool = False) -> VectorUnit:
    """Vector registers of a target's CPU; those of a GPU are none of our sketches' concern."""
    if target.kind.name != "llvm":
        return VectorUnit(1)
    names = ("mcpu", "mtriple", "mattr")
    given = {name: target.attrs[name] for name in names if name in target.attrs}
    isa, width_bytes = vector_isa({"kind": "llvm", **given})
    registers = 16 if isa in ISAS_OF_FEW_REGISTERS else 32
    return VectorUnit(width_bytes // FLOAT32_BYTES, registers, full_rate)


def replay(module: tvm.IRModule, trace: str) -> Schedule:
    """The schedule of a recorded trace, post-processing included as it was recorded."""
    load_for_cpu()
    if "wmma_" in trace:
        load_for_tensor_cores()
    register_named(trace)
    schedule = Schedule(module, debug_mask="none")
    TvmTrace.apply_json_to_schedule(json.loads(trace), schedule)
    return schedule


def as_candidate(schedule: Schedule) -> ms.MeasureCandidate:
    """A schedule with the arguments its program takes, weights in the layout it wants."""
    arguments = ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
    return ms.MeasureCandidate(schedule, arguments)
