"""Sketches of products of quantised tensors, or of bfloat16, whose sums stay in AMX's tiles.

The packaged model has met no such program. So a sketch lets nothing be drawn that is known to be
slow: cores have equal shares, and divide what costs less
(docs/experiments/2026-11-30-programs-in-tiles.md).
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from tvm.sym import detect_linear_equation
from tvm.target import Target
from tvm.target.codegen import target_has_features

from hetfeat.schedules import blocked, dot_products
from hetfeat.schedules.registers import VectorUnit
from hetfeat.schedules.tile_intrinsics import FACTORS, TileBlock
from hetfeat.workloads.tile_shapes import LANES, tiles_of

FEATURES = {"uint8": "amx-int8", "uint16": "amx-bf16"}
"""By the type of the data, what a CPU has that multiplies it."""


def sketches(schedule: Any, target: Target) -> tuple[blocked.Sketch, ...]:
    """Our sketches of a kernel in tiles; none where target or kernel are not for them.

    Args:
        schedule: Schedule of the kernel.
        target: Target of TVM.
    """
    if not target_has_features("amx-tile", target) or not blocked.fills_registers(schedule, LANES):
        return ()
    block, cores = _block(schedule), int(target.attrs["num-cores"])
    if block is None or not target_has_features(FEATURES[block.data], target):
        return ()
    divided = _divided(schedule, block, cores)
    return tuple(partial(in_tiles, block, cores, by_channels) for by_channels in divided)


def _block(schedule: Any) -> TileBlock | None:
    """The block of sums for a kernel, if tiles divide it."""
    anchor = schedule.get(dot_products.anchor_of(schedule))
    data, *others = (str(read.source.dtype) for read in anchor.reads)
    if data not in FACTORS or others != [FACTORS[data].weights]:
        return None
    axes = [(int(axis.dom.extent), int(axis.iter_type)) for axis in anchor.iter_vars]
    *_, rows, channels = [extent for extent, kind in axes if kind != blocked.REDUCTION]
    *_, depth = [extent for extent, kind in axes if kind == blocked.REDUCTION]
    step, sizes = _step(schedule), tiles_of(rows, channels, depth, FACTORS[data].bytes)
    return TileBlock(data, *sizes, step) if step and sizes else None


def _divided(
    schedule: Any, block: TileBlock, cores: int, large_bytes: int = 2**20
) -> Sequence[bool]:
    """Whether cores had better divide channels, or rows; both, where neither keeps them busy.

    By rows each core reads all weights: those of a megabyte and more are divided.
    """
    anchor = schedule.get(dot_products.anchor_of(schedule))
    *of_rows, channels = (
        int(axis.dom.extent)
        for axis in anchor.iter_vars
        if int(axis.iter_type) != blocked.REDUCTION
    )
    wide = math.prod(of_rows[:-1])
    of_channels = _keep_busy(channels // (block.channels * LANES), cores)
    if _keep_busy(wide if wide > 1 else of_rows[-1] // (block.along * block.rows), cores):
        return (of_channels and blocked.bytes_of(anchor.reads[1]) >= large_bytes,)
    return (True,) if of_channels else (False, True)


def _keep_busy(shares: int, cores: int, least: float = 0.89) -> bool:
    """Whether equal shares keep cores busy most of the time: nine do two, and seven do not."""
    return _busy(shares, cores) >= least


def _busy(shares: int, cores: int) -> float:
    """Share of the time that cores are busy with equal shares."""
    return shares / (math.ceil(shares / cores) * cores)


def _shared(schedule: Any, loop: Any, cores: int, times: int = 1) -> tuple[Any, Any]:
    """The loop split into shares of the cores, and what each has: few that keep them busy.

    Args:
        schedule: Schedule of the kernel.
        loop: Loop to split.
        cores: Cores of the CPU.
        times: Iterations of the loops around, which cores share with it; 1 by default.
    """
    extent = blocked.extent(schedule, loop)
    equal = [n for n in range(1, extent + 1) if extent % n == 0]
    shares = [n for n in equal if _keep_busy(n * times, cores)] or [
        max(equal, key=lambda n: _busy(n * times, cores))
    ]
    few = [n for n in shares if n <= 2 * shares[0]]
    outer, inner = schedule.split(loop, [blocked.one_of(schedule, few), None])
    return outer, inner


def _step(schedule: Any) -> int | None:
    """Rows of the data from one row of the sums to the next: a stride; None of uneven ones."""
    block = schedule.get(dot_products.anchor_of(schedule))
    kept = [axis for axis in block.iter_vars if int(axis.iter_type) != blocked.REDUCTION]
    found = detect_linear_equation(block.reads[0].region[-2].min, [kept[-2].var])
    return int(found[0]) if found else None


def in_tiles(
    block: TileBlock, cores: int, across_channels: bool, schedule: Any, unit: VectorUnit
) -> None:
    """A block of tiles of sums, over whose depth products go in steps.

    Args:
        block: Tiles of sums.
        cores: Cores of the CPU.
        across_channels: Whether each core computes some channels, or some rows.
        schedule: Schedule of the kernel.
        unit: Vector registers of the device.
    """
    block.register()
    anchor, pads, output = dot_products.arranged(schedule)
    _pack(schedule, anchor, block)
    stored = schedule.cache_write(anchor, 0, "local")
    schedule.set_scope(stored, 0, "local")
    *outer, x, channels = schedule.get_loops(output)
    wide = [loop for loop in outer if blocked.extent(schedule, loop) > 1]
    *_, of, _ = blocked.computed_loops(schedule, anchor, [*outer, x, channels])
    together = block.along * block.rows
    blocks = blocked.extent(schedule, of) // together
    along, x1 = schedule.split(x, [blocks, together])
    rows, inside = (wide.pop(), [along]) if wide else (along, [])
    if across_channels:
        y0, y1 = blocked.tile_loop(schedule, rows, 2, blocked.LARGEST_TILE)
    else:
        around = math.prod(blocked.extent(schedule, loop) for loop in wide)
        y0, y1 = _shared(schedule, rows, cores, around)
    inside = [y1, *inside]
    c0, c1, vector = schedule.split(channels, [None, block.channels, LANES])
    if across_channels:
        c0, more = _shared(schedule, c0, cores)
        schedule.reorder(c0, *wide, y0, more, *inside, x1, c1, vector)
        loop = c0
    else:
        schedule.reorder(*wide, y0, c0, *inside, x1, c1, vector)
        loop = schedule.fuse(*wide, y0)
    schedule.vectorize(vector)
    schedule.compute_at(stored, inside[-1], preserve_unit_loops=True)
    schedule.compute_at(anchor, inside[-1], preserve_unit_loops=True)
    schedule.parallel(loop)
    for pad in pads:
        if not across_channels:
            schedule.compute_at(pad, loop, preserve_unit_loops=True)
        *around, row, depth = schedule.get_loops(pad)
        blocked.vectorized(schedule, depth, unit)
        if across_channels:
            schedule.parallel(schedule.fuse(*around) if around else row)
    _accumulate(schedule, anchor, stored, block)


def _pack(schedule: Any, anchor: Any, block: TileBlock) -> None:
    """Weights as tiles in the order they are multiplied in, laid out before the network runs."""
    packed = schedule.cache_read(anchor, 1, "global")
    wide, group = block.channels * LANES, block.of.group

    def pack(*at: Any) -> tuple[Any, ...]:
        *window, depth, channel = at
        whole = (channel // wide, *window, depth // block.deep, channel // LANES % block.channels)
        return *whole, depth % block.deep // group, channel % LANES, depth % group

    matrix, filters = (lambda k, c: pack(k, c)), (lambda y, x, k, c: pack(y, x, k, c))
    dimensions = len(schedule.get(packed).reads[0].source.shape)
    schedule.transform_layout(anchor, ("read", 1), matrix if dimensions == 2 else filters)
    schedule.annotate(packed, "meta_schedule.layout_rewrite_preproc", True)


def _accumulate(schedule: Any, anchor: Any, stored: Any, block: TileBlock) -> None:
    """The sums in tiles, each step of the depth an intrinsic."""
    schedule.set_scope(anchor, 0, "local")
    kinds = dot_products.kinds(schedule, anchor)
    own = list(zip(schedule.get_loops(anchor)[-len(kinds) :], kinds, strict=True))
    *outer, x, channels = [loop for loop, kind in own if kind != blocked.REDUCTION]
    *window, depth = [loop for loop, kind in own if kind == blocked.REDUCTION]
    step, deep = schedule.split(depth, [None, block.deep])
    schedule.reorder(*outer, *window, step, x, channels, deep)
    first = schedule.decompose_reduction(anchor, [*window, step][0])
    schedule.tensorize(schedule.get_loops(first)[-2], block.name("zero"))
    schedule.tensorize(x, block.name("multiply"))
    schedule.tensorize(schedule.get_loops(stored)[-2], block.name("store"))
