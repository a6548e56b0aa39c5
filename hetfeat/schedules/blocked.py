"""Sketches of blocked products: convolutions and matrix products, beside MetaSchedule's own.

MetaSchedule draws the tiles of every loop freely, and few of its programs use vector registers
well. Here a kernel's innermost block is a few rows of whole vectors held in registers, and what is
drawn is how many, and the blocks around them (Goto and van de Geijn 2008, "Anatomy of
High-Performance Matrix Multiplication", ACM TOMS 34). One parallel loop goes through all stages of
a kernel, so that what a core writes, the same core reads.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from typing import Any

from hetfeat.schedules.registers import VectorUnit
from hetfeat.workloads.half_types import STORED_IN

Sketch = Callable[[Any, VectorUnit], None]
"""Schedules a kernel, its decisions drawn at random: a TVM schedule, and the CPU's registers."""

LARGEST_TILE = 64
"""MetaSchedule's limit of an innermost tile, too."""
REGISTER_BLOCK = REGISTER_ROWS, REGISTER_VECTORS = 16, 4
"""Largest block whose sums are held in registers, in rows and vectors; not all of them fit."""
DEPTHWISE_BLOCK = 8, 2
"""The same of a depthwise convolution, whose rows share little but the weights."""
UNEVEN_ROWS = (4, 5, 6, 9)
"""Rows of a block where none divide those of the output, whose last block then has fewer."""
MOST_PADDED = 1.06
"""Largest number of rows computed for each that is stored, as `pad_rows` has it."""
LONG_STEPS = (8, 16, 32, 64)
"""Innermost steps of a sum over pixels: one at a time took twice as long, each tested for."""
LEAST_SHARES = 4
"""Fewest pieces of work that pixels, or channels, are divided into, for several cores."""
REDUCTION = 2
"""TVM's `IterVar.CommReduce`."""


def fills_registers(schedule: Any, lanes: int) -> bool:
    """Whether a kernel has one sum, of products of two arrays that both are read again and again.

    Elsewhere registers have nothing to hold: each weight of a product with one row is read once,
    and each value of a depthwise convolution's input for one channel alone. Nor is there much
    where channels are no whole vectors, or of few rows that no tile divides, such as 13.

    Args:
        schedule: Schedule of the kernel.
        lanes: Elements of the narrowest vector.
    """
    found = [schedule.get(schedule.get_sblock(name)) for name in sums(schedule)]
    if len(found) != 1 or len(found[0].reads) != 2 or not all(_rereads(found[0])):
        return False
    axes = [axis for axis in found[0].iter_vars if int(axis.iter_type) != REDUCTION]
    rows, channels = (int(axis.dom.extent) for axis in axes[-2:])
    return channels % lanes == 0 and (_have_tiles(rows) or needs_uneven(rows))


def _is_float32(block: Any) -> bool:
    """Whether data is float32, and weights are or become it as they are read."""
    data, weights = (str(read.source.dtype) for read in block.reads)
    return data == "float32" and weights in ("float32", *STORED_IN.values())


def _have_tiles(rows: int) -> bool:
    return any(rows % tile == 0 for tile in range(2, REGISTER_ROWS + 1))


def needs_uneven(rows: int) -> bool:
    """Whether there are many rows, and no tile that fits divides them: the last one has fewer."""
    return rows > REGISTER_ROWS and not _have_tiles(rows)


def _rereads(block: Any) -> Iterator[bool]:
    """Of each array that a sum reads, whether several elements of the output share its values."""
    from tvm.tirx.analysis import undefined_vars

    wide = {
        axis.var
        for axis in block.iter_vars
        if int(axis.iter_type) != REDUCTION and int(axis.dom.extent) > 1
    }
    for read in block.reads:
        indices = chain.from_iterable(undefined_vars(at.min) for at in read.region)
        yield not wide <= set(indices)


def by_rows(schedule: Any, unit: VectorUnit) -> None:
    """Each core computes some rows of the output: of an image, or of a matrix."""
    _blocked(schedule, unit, across_channels=False)


def by_channels(schedule: Any, unit: VectorUnit) -> None:
    """Each core computes some channels of the output, or columns of a matrix."""
    _blocked(schedule, unit, across_channels=True)


SKETCHES: tuple[Sketch, ...] = (by_rows, by_channels)


def divides_weights(schedule: Any, block: str, unit: VectorUnit, large_bytes: int = 2**22) -> bool:
    """Whether cores had better divide a sum's weights: these are large, and larger than its data.

    By rows each core reads all weights, again for each of its pieces, by channels all data
    (docs/experiments/2026-11-30-first-choices-on-an-intel.md).

    Args:
        schedule: Schedule of the kernel.
        block: Name of the block of the sum.
        unit: The CPU's registers.
        large_bytes: Weights from which on it is so, in bytes; 4 MiB by default: what a core's own
            caches do not hold.
    """
    found = schedule.get(schedule.get_sblock(block))
    data, weights = map(bytes_of, found.reads)
    *_, channels = (axis for axis in found.iter_vars if int(axis.iter_type) != REDUCTION)
    has_shares = int(channels.dom.extent) >= LEAST_SHARES * unit.vector
    return has_shares and weights >= max(large_bytes, data)


def bytes_of(read: Any) -> int:
    """Bytes of the whole tensor that a block reads some region of."""
    from tvm import DataType

    elements = math.prod(map(int, read.source.shape))
    return elements * int(DataType(read.source.dtype).itemsize)


def sketches(schedule: Any, unit: VectorUnit) -> tuple[Sketch, ...]:
    """Those of a kernel that fills registers; with 16 of them images may be divided by rows."""
    (block,) = sums(schedule)
    axes = schedule.get(schedule.get_sblock(block)).iter_vars
    has_window = [int(axis.iter_type) for axis in axes].count(REDUCTION) > 1
    by_rows_too = (unit.is_small and has_window) or not divides_weights(schedule, block, unit)
    return SKETCHES if by_rows_too else (by_channels,)


def by_rows_of_channels(schedule: Any, unit: VectorUnit) -> None:
    """Each core computes some rows of some channels of an image.

    What pads the input is asked for where it is read. Copying it took half as long again.
    """
    _blocked(schedule, unit, across_channels=False, depthwise=True)


DEPTHWISE: tuple[Sketch, ...] = (by_rows_of_channels,)


def is_depthwise(schedule: Any, lanes: int) -> bool:
    """Whether a kernel is a depthwise convolution whose channels fill vectors.

    Each value of its input is read for one channel alone, but for several outputs of a window.

    Args:
        schedule: Schedule of the kernel.
        lanes: Elements of a vector.
    """
    found = [schedule.get(schedule.get_sblock(name)) for name in sums(schedule)]
    if len(found) != 1 or len(found[0].reads) != 2:
        return False
    axes = found[0].iter_vars
    outer = [int(axis.dom.extent) for axis in axes if int(axis.iter_type) != REDUCTION]
    *window, depth = (int(axis.dom.extent) for axis in axes if int(axis.iter_type) == REDUCTION)
    is_window = len(outer) == 4 and len(window) == 2 and math.prod(window) > 1
    return is_window and depth == 1 and outer[-1] % lanes == 0 and not all(_rereads(found[0]))


def _blocked(
    schedule: Any, unit: VectorUnit, across_channels: bool, depthwise: bool = False
) -> None:
    anchor, pads, output = _arranged(schedule)
    flat = unit.is_small and _is_pointwise(schedule, anchor, pads, output)
    most_rows, most_vectors = DEPTHWISE_BLOCK if depthwise else REGISTER_BLOCK
    if flat or depthwise:
        for pad in pads:
            schedule.compute_inline(pad)
        pads = []
    if flat:
        _flatten(schedule, anchor, output)
    *rows, channels = schedule.get_loops(output)
    computed = computed_loops(schedule, anchor, [*rows, channels])
    steps = () if needs_uneven(extent(schedule, computed[-2])) else unit.steps
    wide, y0, between, tile = (
        _tile_pixels(schedule, rows[0], across_channels)
        if flat
        else _tile_rows(schedule, rows, computed[:-1], unit, most_rows)
    )
    vectors, vector = vectorized(schedule, channels, unit)
    c0, c1, c2 = tile_loop(schedule, vectors, 3, most_vectors)
    inside = [*between, c1, *tile, c2, vector]
    if across_channels:
        schedule.reorder(c0, *wide, y0, *inside)
        loop = c0
    else:
        schedule.reorder(*wide, y0, c0, *inside)
        loop = schedule.fuse(*wide, y0, *([c0] if depthwise else []))
    for row in (*tile, c2):
        schedule.unroll(row)
    schedule.compute_at(anchor, c1, preserve_unit_loops=True)
    schedule.parallel(loop)
    _accumulated(schedule, anchor, unit, steps, len(tile) > 1, flat)
    for pad in pads:
        if not across_channels:
            schedule.compute_at(pad, loop, preserve_unit_loops=True)
        *around, _, _, depth = schedule.get_loops(pad)
        vectorized(schedule, depth, unit)
        if across_channels:
            schedule.parallel(schedule.fuse(*around))


def _is_pointwise(schedule: Any, anchor: Any, pads: list[Any], output: Any) -> bool:
    """Whether it is a convolution of many pixels, each output of one, and none of them padding."""
    block = schedule.get(anchor)
    axes = block.iter_vars
    outer = [int(axis.dom.extent) for axis in axes if int(axis.iter_type) != REDUCTION]
    *window, _ = (int(axis.dom.extent) for axis in axes if int(axis.iter_type) == REDUCTION)
    copied = [(pad.reads[0].source, pad.writes[0].source) for pad in map(schedule.get, pads)]
    pads_nothing = all(list(read.shape) == list(write.shape) for read, write in copied)
    many = len(outer) == 4 and math.prod(outer[:3]) > REGISTER_ROWS
    in_order = outer == [extent(schedule, loop) for loop in schedule.get_loops(output)]
    return many and in_order and window == [1, 1] and pads_nothing and _is_float32(block)


def _flatten(schedule: Any, anchor: Any, output: Any) -> None:
    """Makes the pixels of all images one loop, as of a matrix product.

    Rows of 7, 14, 28 and 56 pixels have no tiles of six, and all pixels together need none that
    divides them: only the last block has fewer.
    """
    _, height, width = (extent(schedule, loop) for loop in schedule.get_loops(output)[:3])

    def flat(image: Any, y: Any, x: Any, channel: Any) -> list[Any]:
        return [(image * height + y) * width + x, channel]

    def summed(image: Any, y: Any, x: Any, channel: Any, _: Any, __: Any, at: Any) -> list[Any]:
        return [*flat(image, y, x, channel), at]

    schedule.transform_layout(anchor, ("write", 0), flat)
    schedule.transform_block_layout(anchor, summed)
    schedule.transform_block_layout(output, flat)


def _tile_pixels(
    schedule: Any, pixels: Any, across_channels: bool
) -> tuple[list[Any], Any, list[Any], list[Any]]:
    """The loop over pixels, tiled as `_tile_rows` has it; the last block has what is left."""
    whole, pixel = uneven(schedule, pixels)
    if across_channels:
        return [], whole, [], [pixel]
    most = max(1, extent(schedule, whole) // LEAST_SHARES)
    of_each = one_of(schedule, [2**power for power in range(most.bit_length())])
    y0, y1 = schedule.split(whole, [None, of_each])
    return [], y0, [y1], [pixel]


def _tile_rows(
    schedule: Any,
    loops: list[Any],
    computed: list[Any],
    unit: VectorUnit,
    most: int = REGISTER_ROWS,
) -> tuple[list[Any], Any, list[Any], list[Any]]:
    """The loops over rows, tiled: whole ones, the outermost of a tile, others, those of a block.

    Args:
        schedule: Schedule of the kernel.
        loops: The output's loops but that over channels.
        computed: Loops whose divisors tile those, one for each.
        unit: The CPU's registers.
        most: Most rows of a block; 16 by default.
    """
    *outer, x = loops
    *of, rows = computed
    of = [loop for loop in of if extent(schedule, loop) > 1]
    wide = [loop for loop in outer if extent(schedule, loop) > 1]
    if needs_uneven(extent(schedule, rows)):
        x0, x1 = uneven(schedule, x)
        if not wide:
            y0, y1 = tile_loop(schedule, x0, 2, LARGEST_TILE)
            return wide, y0, [y1], [x1]
        y0, y1 = tile_loop(schedule, wide.pop(), 2, LARGEST_TILE, of=of.pop())
        return wide, y0, [y1, x0], [x1]
    if not wide:
        y0, y1, x1 = tile_loop(schedule, x, 3, most, of=rows)
        return wide, y0, [y1], [x1]
    if unit.is_small:  # few rows fit: of 14, two of each of two rows of an image
        y0, y1, y2 = tile_loop(schedule, wide.pop(), 3, most, of=of.pop())
        x0, x1 = tile_loop(schedule, x, 2, most, of=rows)
        return wide, y0, [y1, x0], [y2, x1]
    y0, y1 = tile_loop(schedule, wide.pop(), 2, LARGEST_TILE, of=of.pop())
    x0, x1 = tile_loop(schedule, x, 2, most, of=rows)
    return wide, y0, [y1, x0], [x1]


def _arranged(schedule: Any) -> tuple[Any, list[Any], Any]:
    """The block of the sum, those that pad its input, and that of the output; others inlined."""
    names = blocks(schedule)
    (anchor,) = sums(schedule)
    at = names.index(anchor)
    pads = [name for name in names[:at] if "pad" in name]
    after = names[at + 1 :]
    for name in (*names[:at], *after[:-1]):
        if name not in pads:
            schedule.compute_inline(schedule.get_sblock(name))
    block = schedule.get_sblock(anchor)
    output = schedule.get_sblock(after[-1]) if after else schedule.cache_write(block, 0, "global")
    return block, [schedule.get_sblock(name) for name in pads], output


def computed_loops(schedule: Any, anchor: Any, loops: list[Any]) -> list[Any]:
    """For each of the output's loops, the loop whose divisors tile it: the sum's, or itself.

    `workloads.passes.pad_rows` computes a few rows that are not stored. The output's rows have no
    divisors, the sum's have. Other kernels keep the traces that were recorded of them.
    """
    axes = [axis for axis in schedule.get(anchor).iter_vars if int(axis.iter_type) != REDUCTION]
    if len(axes) != len(loops):
        return loops
    stored = [extent(schedule, loop) for loop in loops]
    more = [int(axis.dom.extent) / rows for axis, rows in zip(axes, stored, strict=True)]
    padded = max(more) > 1 and all(1 <= share <= MOST_PADDED for share in more)
    return list(schedule.get_loops(anchor))[: len(loops)] if padded else loops


def _accumulated(
    schedule: Any, block: Any, unit: VectorUnit, at_once: Sequence[int], tall: bool, flat: bool
) -> None:
    """The sum of one block of registers: over the depth innermost, or over a window unrolled.

    Args:
        schedule: Schedule of the kernel.
        block: Block of the sum.
        unit: The CPU's registers.
        at_once: See `unrolled_steps`.
        tall: Whether a block of registers is of several rows of an image.
        flat: Whether its rows are pixels, of which the last block has fewer: in each innermost step
            it is tested which there are, so these steps are long.
    """
    kinds = [int(axis.iter_type) for axis in schedule.get(block).iter_vars]
    own = schedule.get_loops(block)[-len(kinds) :]
    *outer, x, channels = [loop for loop, kind in zip(own, kinds, strict=True) if kind != REDUCTION]
    *window, depth = [loop for loop, kind in zip(own, kinds, strict=True) if kind == REDUCTION]
    if extent(schedule, depth) == 1:
        for loop in window:
            schedule.unroll(loop)
    vectors, vector = vectorized(schedule, channels, unit)
    long = [step for step in LONG_STEPS if flat and extent(schedule, depth) % step == 0]
    if long:
        d0, *inside = schedule.split(depth, [None, one_of(schedule, long)])
    else:
        depth, *steps = unrolled_steps(schedule, depth, at_once)
        d0, d1 = tile_loop(schedule, depth, 2, LARGEST_TILE)
        inside = [d1, *steps]
    rows = [outer.pop(), x] if tall else [x]
    schedule.reorder(*outer, d0, *window, *inside, *rows, vectors, vector)
    for loop in (*rows, vectors):
        schedule.unroll(loop)


def unrolled_steps(schedule: Any, depth: Any, at_once: Sequence[int]) -> list[Any]:
    """The loop over a sum's depth, and inside it one unrolled, of the first number that divides it.

    None is unrolled where rows are tested for: LLVM takes the tests out of a loop, and not out of
    four steps of nine rows, which take twice as long.

    Args:
        schedule: Schedule of the kernel.
        depth: Loop over the depth.
        at_once: Numbers of steps, as `VectorUnit.steps` has them.
    """
    steps = next((steps for steps in at_once if extent(schedule, depth) % steps == 0), 1)
    if steps == 1:
        return [depth]
    outer, inner = schedule.split(depth, [None, steps])
    schedule.unroll(inner)
    return [outer, inner]


def tile_loop(
    schedule: Any, loop: Any, levels: int, innermost: int, of: Any | None = None
) -> list[Any]:
    """The loop split into so many, their extents drawn, the last of them limited.

    Args:
        schedule: Schedule of the kernel.
        loop: Loop to split.
        levels: Number of loops that it becomes.
        innermost: Largest extent of the last of them.
        of: Loop whose divisors are drawn, of a few iterations more; by default `loop` itself. What
            is beyond the end of `loop` is tested for, and left out.
    """
    factors = schedule.sample_perfect_tile(loop if of is None else of, levels, innermost)
    return list(schedule.split(loop, factors))


def uneven(schedule: Any, loop: Any) -> tuple[Any, Any]:
    """The loop split into blocks of as many rows as are drawn; the last one has what is left."""
    blocks_of_rows, row = schedule.split(loop, [None, one_of(schedule, UNEVEN_ROWS)])
    return blocks_of_rows, row


def one_of(schedule: Any, values: Sequence[int]) -> Any:
    """One of the values, drawn at random, each as likely."""
    return schedule.sample_categorical(list(values), [1 / len(values)] * len(values))


def vectorized(schedule: Any, loop: Any, unit: VectorUnit) -> tuple[Any, Any]:
    """The loop split into one over vectors, and those: as wide as they may be, or what divides it.

    Only powers of two: LLVM takes vectors of 12 or 24 elements apart into slow pieces.
    """
    width = math.gcd(extent(schedule, loop), unit.vector)
    vectors, vector = schedule.split(loop, [None, width])
    schedule.vectorize(vector)
    return vectors, vector


def blocks(schedule: Any) -> list[str]:
    """Names of a kernel's blocks, in their order."""
    children = schedule.get_child_blocks(schedule.get_sblock("root"))
    return [str(schedule.get(block).name_hint) for block in children]


def inlined(schedule: Any, kept: Collection[str] = ()) -> Any:
    """The block of the output; all others are inlined, but those whose names are kept."""
    *others, output = (name for name in blocks(schedule) if name not in kept)
    for name in others:
        schedule.compute_inline(schedule.get_sblock(name))
    return schedule.get_sblock(output)


def extent(schedule: Any, loop: Any) -> int:
    """Iterations of a loop."""
    return int(schedule.get(loop).extent)


def sums(schedule: Any) -> list[str]:
    """Names of the blocks that reduce, in their order."""
    kinds = {
        name: [int(axis.iter_type) for axis in schedule.get(schedule.get_sblock(name)).iter_vars]
        for name in blocks(schedule)
    }
    return [name for name, found in kinds.items() if REDUCTION in found]
