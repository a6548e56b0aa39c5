"""The vector registers of a CPU, and whether a custom sketch's block of sums fits them.

What does not fit is spilled: stored and loaded again between the products. Too few sums leave the
multipliers waiting for each other.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hetfeat.devices.profile import DeviceProfile
from hetfeat.schedules.threads import first_kept
from hetfeat.schedules.trace import CATEGORICAL, TILE, Trace, drawn_anew, without_postproc

FLOAT32_BYTES = 4

STEPS = (4, 3, 2)
"""See `VectorUnit.steps`."""

WIDEST_BYTES = 64
"""Bytes of a register of AVX-512, the only vectors of x86 with 32 registers."""


@dataclass(frozen=True)
class VectorUnit:
    """Vector registers of a CPU.

    Attributes:
        lanes: Elements of a register.
        registers: Number of registers, 16 or 32; 32 by default.
        full_rate: Whether a vector is multiplied in the time of a number; False by default. Zen 4
            takes twice as long for one of AVX-512, and half the sums keep it busy.
        operands: Fewest registers that the sums of a block must leave; 3 by default. Besides, each
            of its vectors of weights takes one, and a value of the data in all lanes another.
        fewest_sums: Sums of a block, in registers, that keep most multipliers busy; 6 by default:
            two of four cycles each take eight, and seven rows of one vector are common.
        wanted_sums: Sums asked for where each sketch of a task can have as many; 12 by default:
            six rows of two vectors, or four of three, which load least for each product. Products
            of integers are not asked: each takes a register before it is summed.
    """

    lanes: int
    registers: int = 32
    full_rate: bool = False
    operands: int = 3
    fewest_sums: int = 6
    wanted_sums: int = 12

    @property
    def is_small(self) -> bool:
        """Whether it has 16 registers, as AVX2 and SSE have."""
        return self.registers <= 16

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps of a sum that a custom sketch takes at once, the first of these that divides it.

        An Intel with AVX-512 counts on the ports that multiply: four steps at once take 0.96 of the
        time (docs/experiments/2026-11-30-first-choices-on-an-intel.md).
        """
        return STEPS if self.full_rate and not self.is_small else ()

    def limits(self, trace: Trace) -> bool:
        """Whether the sums of a trace must fill the registers, and keep to them.

        With 16 registers always. With 32 those of floats must where vectors are multiplied at the
        full rate: a model that knows other CPUs asks for too few
        (docs/experiments/2026-11-30-first-choices-on-an-intel.md).
        """
        return self.is_small or (self.full_rate and not _is_tensorized(trace))

    @property
    def vector(self) -> int:
        """Elements of the widest vector of a custom sketch: two registers where there are 32."""
        return self.lanes if self.is_small else 2 * self.lanes

    @property
    def narrowest(self) -> int:
        """Elements of the narrowest vector of a custom sketch: half a register of AVX-512."""
        return min(self.lanes, WIDEST_BYTES // FLOAT32_BYTES // 2)

    def holds(self, trace: Trace, fewest: int = 0) -> bool:
        """Whether the sums of a trace's innermost block leave room for their operands.

        False where one core would do all the work, too. True of traces that have no limits, and of
        MetaSchedule's sketches, which unroll nothing that is drawn.

        Args:
            trace: Trace with its decisions.
            fewest: Fewest sums that will do, in registers; 0 by default.
        """
        block = block_of(trace, self.lanes) if self.limits(trace) else None
        if block is None:
            return True
        sums, vectors = block
        fits = fewest <= sums <= self.registers - max(self.operands, vectors + 1)
        return fits and is_shared(trace)

    def fewest_of(self, sketches: Sequence[Trace]) -> int:
        """Sums that every program must have: as wanted, or as few as will do, or none.

        They are the first of these that each of the sketches can have.

        Args:
            sketches: Traces of a task, one at least of each sketch.
        """
        if not all(map(self.limits, sketches)):
            return 0
        floats = not any(_is_tensorized(sketch) for sketch in sketches)
        asked = (self.wanted_sums, self.fewest_sums) if floats else (self.fewest_sums,)
        return next((sums for sums in asked if self._can_have(sums, sketches)), 0)

    def _can_have(self, sums: int, sketches: Sequence[Trace]) -> bool:
        rng, full = random.Random(0), partial(self.holds, fewest=sums)
        return all(first_kept(partial(drawn_anew, sketch, rng), full) for sketch in sketches)


MANY_REGISTERS = VectorUnit(1)
"""Registers that hold the sums of any trace."""


def unit_of(profile: DeviceProfile, full_rate: float = 2 / 3) -> VectorUnit:
    """The vector registers of a device, by its profile.

    `design_space.vector_unit` asks TVM's target for them, which the tuner's process does not load.
    A profile that does not say how wide they are limits nothing.

    Args:
        profile: Profile of the device.
        full_rate: Vectors multiplied in the time of a number from which on the rate is full; 2/3 by
            default: with AVX-512 it is 0.5 on Zen 4, 0.8 on an Intel, 0.9 on Zen 5.
    """
    if profile.family != "cpu-x86" or profile.vector_unit_bytes is None:
        return MANY_REGISTERS
    lanes = profile.vector_unit_bytes // FLOAT32_BYTES
    peak, scalars = profile.peak_gflops or 0.0, profile.scalar_gflops or math.inf
    is_full = peak / scalars > full_rate * lanes
    return VectorUnit(lanes, 16 if lanes * FLOAT32_BYTES < WIDEST_BYTES else 32, is_full)


def sums_of(trace: Trace, lanes: int) -> int | None:
    """Registers of the sums of a custom sketch's innermost block; None of another sketch."""
    block = block_of(trace, lanes)
    return block[0] if block else None


def _is_tensorized(trace: Trace) -> bool:
    instructions, _ = without_postproc(trace)
    return any(kind == "Tensorize" for kind, *_ in instructions)


def block_of(trace: Trace, lanes: int) -> tuple[int, int] | None:
    """Of a custom sketch's innermost block, the registers of its sums and those of one row's.

    None of another sketch.
    """
    instructions, extents = _extents(trace)
    vector, unrolled, steps = lanes, list[int](), set[object]()
    for kind, inputs, _, outputs in instructions:
        if kind == "Split":  # what is not drawn
            steps |= {loop for loop, by in zip(outputs, inputs[1:], strict=True) if by in STEPS}
        elif kind == "Vectorize" and not unrolled:
            vector = extents.get(inputs[0], vector)
        elif kind == "Unroll" and inputs[0] in extents and inputs[0] not in steps:
            unrolled.append(extents[inputs[0]])
    if not unrolled:
        return None
    of_each = math.ceil(vector / lanes)
    *rows, vectors = unrolled if len(unrolled) > 1 else (*unrolled, 1)
    return math.prod(rows) * vectors * of_each, vectors * of_each


def is_shared(trace: Trace) -> bool:
    """Whether a second core has something to do: no loop for all cores is known to run once."""
    instructions, extents = _extents(trace)
    return not any(kind == "Parallel" and extents.get(of[0]) == 1 for kind, of, *_ in instructions)


def _extents(trace: Trace) -> tuple[list[Any], dict[object, int]]:
    """Instructions of a trace but post-processing, and the iterations of loops that it decides."""
    instructions, decisions = without_postproc(trace)
    chosen = dict(decisions)
    extents: dict[object, int] = {}
    for index, (kind, inputs, attributes, outputs) in enumerate(instructions):
        if kind == TILE and index in chosen:
            extents |= zip(outputs, chosen[index], strict=True)
        elif kind == CATEGORICAL and index in chosen:
            extents[outputs[0]] = attributes[0][chosen[index]]
        elif kind == "Split":
            factors = [extents.get(factor, factor) for factor in inputs[1:]]
            known = zip(outputs, factors, strict=True)
            extents |= {loop: factor for loop, factor in known if isinstance(factor, int)}
        elif kind == "Fuse" and all(loop in extents for loop in inputs):
            extents[outputs[0]] = math.prod(extents[loop] for loop in inputs)
    return instructions, extents
