"""Sketches of products of narrow numbers whose sums stay in registers.

A few products of each sum are one instruction's work (`dot_intrinsics`). Weights are packed so
that an instruction reads what it needs in one piece.
"""

from functools import partial
from typing import Any

from tvm.target import Target
from tvm.target.codegen import target_has_features

from hetfeat.schedules import blocked
from hetfeat.schedules.intrinsics import INSTRUCTIONS, DotProducts
from hetfeat.schedules.registers import VectorUnit

MOST_ROWS, MOST_VECTORS = 13, 3
"""Largest block of sums; `VectorUnit` tells which of them fit 16 registers."""
ROWS_OF_MANY = 8
"""Largest number of rows that fit 32 registers, however many vectors there are."""


def instruction_for(kernel: Any, target: Target) -> DotProducts | None:
    """The widest instruction of a target that computes a kernel, if any.

    Args:
        kernel: Schedule of the kernel.
        target: Target of TVM.
    """
    own = (
        one
        for one in INSTRUCTIONS
        if any(target_has_features(name, target) for name in one.features)
    )
    return next((one for one in own if _computes(one, kernel)), None)


def sketches(instruction: DotProducts) -> tuple[blocked.Sketch, ...]:
    """Our sketches of the kernels that an instruction computes."""
    return partial(by_rows, instruction), partial(by_channels, instruction)


def _computes(instruction: DotProducts, schedule: Any) -> bool:
    """Whether a kernel is a product of its types that fills registers, of whole groups."""
    if not blocked.fills_registers(schedule, instruction.lanes):
        return False
    block = schedule.get(anchor_of(schedule))
    types = [str(read.source.dtype) for read in block.reads]
    depth = [axis for axis in block.iter_vars if int(axis.iter_type) == blocked.REDUCTION][-1]
    whole = int(depth.dom.extent) % instruction.deep == 0
    return types == [instruction.of_data, instruction.of_weights] and whole


def by_rows(instruction: DotProducts, schedule: Any, unit: VectorUnit) -> None:
    """Each core computes some rows of the output: of an image, or of a matrix."""
    _grouped(instruction, schedule, unit, across_channels=False)


def by_channels(instruction: DotProducts, schedule: Any, unit: VectorUnit) -> None:
    """Each core computes some channels of the output, whose weights no other core reads."""
    _grouped(instruction, schedule, unit, across_channels=True)


def _grouped(
    instruction: DotProducts, schedule: Any, unit: VectorUnit, across_channels: bool
) -> None:
    """A block of rows and vectors of sums, over whose depth an instruction goes in groups."""
    anchor, pads, output = arranged(schedule)
    if not instruction.of_tensors:
        _pack(schedule, anchor, instruction)
    *outer, x, channels = schedule.get_loops(output)
    wide = [loop for loop in outer if blocked.extent(schedule, loop) > 1]
    *_, of, _ = blocked.computed_loops(schedule, anchor, [*outer, x, channels])
    most_rows = MOST_ROWS if unit.is_small else ROWS_OF_MANY
    if wide:
        y0, y1 = blocked.tile_loop(schedule, wide.pop(), 2, blocked.LARGEST_TILE)
        x0, x1 = blocked.tile_loop(schedule, x, 2, most_rows, of=of)
        inside = [y1, x0]
    else:
        y0, x0, x1 = blocked.tile_loop(schedule, x, 3, most_rows, of=of)
        inside = [x0]
    vectors, vector = schedule.split(channels, [None, instruction.lanes])
    c0, c1 = blocked.tile_loop(schedule, vectors, 2, MOST_VECTORS)
    if across_channels:
        schedule.reorder(c0, *wide, y0, *inside, x1, c1, vector)
        loop = c0
    else:  # a core reads all weights once for each of its blocks of rows
        schedule.reorder(*wide, y0, c0, *inside, x1, c1, vector)
        loop = schedule.fuse(*wide, y0)
    schedule.unroll(x1)
    schedule.unroll(c1)
    schedule.vectorize(vector)
    schedule.compute_at(anchor, x0, preserve_unit_loops=True)
    schedule.parallel(loop)
    for pad in pads:
        if not across_channels:
            schedule.compute_at(pad, loop, preserve_unit_loops=True)
        *around, _, depth = schedule.get_loops(pad)
        blocked.vectorized(schedule, depth, unit)
        if across_channels:
            schedule.parallel(schedule.fuse(*around))
    _accumulate(schedule, anchor, instruction)


def anchor_of(schedule: Any) -> Any:
    """The block of the sum."""
    blocks = map(schedule.get_sblock, blocked.blocks(schedule))
    return next(block for block in blocks if blocked.REDUCTION in kinds(schedule, block))


def kinds(schedule: Any, block: Any) -> list[int]:
    """What each of a block's axes is, as TVM numbers it: `blocked.REDUCTION` or another."""
    return [int(axis.iter_type) for axis in schedule.get(block).iter_vars]


def arranged(schedule: Any) -> tuple[Any, list[Any], Any]:
    """The block of the sum, those that pad its input, and that of the output; others inlined."""
    names, anchor = blocked.blocks(schedule), anchor_of(schedule)
    at = names.index(str(schedule.get(anchor).name_hint))
    pads = [name for name in names[:at] if "pad" in name]
    for name in (*names[:at], *names[at + 1 : -1]):
        if name not in pads:
            schedule.compute_inline(schedule.get_sblock(name))
    last = at + 1 < len(names)
    output = schedule.get_sblock(names[-1]) if last else schedule.cache_write(anchor, 0, "global")
    return anchor, [schedule.get_sblock(name) for name in pads], output


def _pack(schedule: Any, anchor: Any, instruction: DotProducts) -> None:
    """Weights as [channels / 8, window, depth / 2, 8, 2], laid out before the network runs."""
    lanes, deep = instruction.lanes, instruction.deep
    packed = schedule.cache_read(anchor, 1, "global")

    def pack(*at: Any) -> tuple[Any, ...]:
        *window, depth, channel = at
        return channel // lanes, *window, depth // deep, channel % lanes, depth % deep

    matrix, filters = (lambda k, c: pack(k, c)), (lambda y, x, k, c: pack(y, x, k, c))
    dimensions = len(schedule.get(packed).reads[0].source.shape)
    schedule.transform_layout(anchor, ("read", 1), matrix if dimensions == 2 else filters)
    schedule.annotate(packed, "meta_schedule.layout_rewrite_preproc", True)


def _accumulate(schedule: Any, block: Any, instruction: DotProducts) -> None:
    """The sums in registers, each step of the depth an instruction for each vector."""
    schedule.set_scope(block, 0, "local")
    of_block = kinds(schedule, block)
    own = list(zip(schedule.get_loops(block)[-len(of_block) :], of_block, strict=True))
    *outer, x, channels = [loop for loop, kind in own if kind != blocked.REDUCTION]
    *window, depth = [loop for loop, kind in own if kind == blocked.REDUCTION]
    vectors, lane = schedule.split(channels, [None, instruction.lanes])
    deep, group = schedule.split(depth, [None, instruction.deep])
    schedule.reorder(*outer, *window, deep, x, vectors, lane, group)
    schedule.unroll(x)
    schedule.unroll(vectors)
    first = schedule.decompose_reduction(block, [*window, deep][0])
    *_, rows, columns, lanes = schedule.get_loops(first)
    schedule.unroll(rows)
    schedule.unroll(columns)
    schedule.vectorize(lanes)
    schedule.tensorize(lane, instruction.name)
