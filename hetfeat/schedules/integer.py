"""Sketches of products of 8-bit integers whose sums stay in registers.

Two products of a sum are one instruction's work (`integer_intrinsics`). Weights are packed so that
an instruction reads what it needs in one piece: eight channels, two deep.
"""

from typing import Any

from hetfeat.schedules import blocked
from hetfeat.schedules.intrinsics import DOT_8X2_AVX2
from hetfeat.schedules.registers import VectorUnit

LANES = 8
"""Sums of 32 bits in a register of AVX2."""
DEPTH = 2
"""Products of 16 bits that an instruction adds."""
_REDUCTION = 2
"""TVM's `IterVar.CommReduce`."""


def multiplies_integers(schedule: Any) -> bool:
    """Whether a kernel is a product of uint8 with int8 that fills registers, in whole pairs."""
    if not blocked.fills_registers(schedule, LANES):
        return False
    block = schedule.get(_anchor(schedule))
    types = [str(read.source.dtype) for read in block.reads]
    depth = [axis for axis in block.iter_vars if int(axis.iter_type) == _REDUCTION][-1]
    return types == ["uint8", "int8"] and int(depth.dom.extent) % DEPTH == 0


def pairs(schedule: Any, unit: VectorUnit, *, most_rows: int = 6, most_vectors: int = 3) -> None:
    """A block of rows and vectors of sums, over whose depth an instruction goes in pairs.

    Args:
        schedule: Schedule of the kernel.
        unit: Vector registers of the CPU; the lanes of this instruction are its own.
        most_rows: Largest number of rows of a block of sums, 6 by default.
        most_vectors: Largest number of vectors of one, 3 by default: with what they are made of
            they fit 16 registers.
    """
    anchor, pads, output = _arranged(schedule)
    _pack(schedule, anchor)
    *outer, x, channels = schedule.get_loops(output)
    wide = [loop for loop in outer if blocked.extent(schedule, loop) > 1]
    x0, x1 = blocked.tile_loop(schedule, x, 2, most_rows)
    vectors, vector = schedule.split(channels, [None, LANES])
    c0, c1 = blocked.tile_loop(schedule, vectors, 2, most_vectors)
    schedule.reorder(*wide, c0, x0, x1, c1, vector)
    schedule.unroll(x1)
    schedule.unroll(c1)
    schedule.vectorize(vector)
    loop = schedule.fuse(*wide) if wide else c0
    schedule.compute_at(anchor, x0, preserve_unit_loops=True)
    schedule.parallel(loop)
    for pad in pads:
        if wide:
            schedule.compute_at(pad, loop, preserve_unit_loops=True)
        blocked.vectorized(schedule, schedule.get_loops(pad)[-1], unit)
    _accumulate(schedule, anchor)


SKETCHES: tuple[blocked.Sketch, ...] = (pairs,)


def _anchor(schedule: Any) -> Any:
    blocks = map(schedule.get_sblock, blocked.blocks(schedule))
    return next(block for block in blocks if _REDUCTION in _kinds(schedule, block))


def _kinds(schedule: Any, block: Any) -> list[int]:
    return [int(axis.iter_type) for axis in schedule.get(block).iter_vars]


def _arranged(schedule: Any) -> tuple[Any, list[Any], Any]:
    """The block of the sum, those that pad its input, and that of the output; others inlined."""
    names, anchor = blocked.blocks(schedule), _anchor(schedule)
    at = names.index(str(schedule.get(anchor).name_hint))
    pads = [name for name in names[:at] if "pad" in name]
    for name in (*names[:at], *names[at + 1 : -1]):
        if name not in pads:
            schedule.compute_inline(schedule.get_sblock(name))
    last = at + 1 < len(names)
    output = schedule.get_sblock(names[-1]) if last else schedule.cache_write(anchor, 0, "global")
    return anchor, [schedule.get_sblock(name) for name in pads], output


def _pack(schedule: Any, anchor: Any) -> None:
    """Weights as [channels / 8, window, depth / 2, 8, 2], laid out before the network runs."""
    packed = schedule.cache_read(anchor, 1, "global")

    def pack(*at: Any) -> tuple[Any, ...]:
        *window, depth, channel = at
        return channel // LANES, *window, depth // DEPTH, channel % LANES, depth % DEPTH

    matrix, filters = (lambda k, c: pack(k, c)), (lambda y, x, k, c: pack(y, x, k, c))
    dimensions = len(schedule.get(packed).reads[0].source.shape)
    schedule.transform_layout(anchor, ("read", 1), matrix if dimensions == 2 else filters)
    schedule.annotate(packed, "meta_schedule.layout_rewrite_preproc", True)


def _accumulate(schedule: Any, block: Any) -> None:
    """The sums in registers, each step of the depth an instruction for each vector."""
    schedule.set_scope(block, 0, "local")
    kinds = _kinds(schedule, block)
    own = list(zip(schedule.get_loops(block)[-len(kinds) :], kinds, strict=True))
    *outer, x, channels = [loop for loop, kind in own if kind != _REDUCTION]
    *window, depth = [loop for loop, kind in own if kind == _REDUCTION]
    vectors, lane = schedule.split(channels, [None, LANES])
    deep, pair = schedule.split(depth, [None, DEPTH])
    schedule.reorder(*outer, *window, deep, x, vectors, lane, pair)
    schedule.unroll(x)
    schedule.unroll(vectors)
    first = schedule.decompose_reduction(block, [*window, deep][0])
    *_, rows, columns, lanes = schedule.get_loops(first)
    schedule.unroll(rows)
    schedule.unroll(columns)
    schedule.vectorize(lanes)
    schedule.tensorize(lane, DOT_8X2_AVX2)
