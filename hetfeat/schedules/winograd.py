"""Winograd's stages in one parallel loop, beside MetaSchedule's, where each has a loop of its own.

Between two parallel loops all data changes hands. In one loop over rows of tiles, or over output
channels, what a core transforms stays in its caches, which counts most where cores share none.
"""

from typing import Any

from hetfeat.schedules.blocked import (
    LARGEST_TILE,
    REGISTER_ROWS,
    REGISTER_VECTORS,
    Sketch,
    blocks,
    divides_weights,
    extent,
    inlined,
    tile_loop,
    unrolled_steps,
    vectorized,
)
from hetfeat.schedules.registers import VectorUnit

STAGES = ("input_tile", "data_pack", "bgemm", "inverse")


def is_winograd(schedule: Any) -> bool:
    """Whether it is a kernel of `workloads.winograd`."""
    return set(STAGES) <= set(blocks(schedule))


def by_rows(schedule: Any, unit: VectorUnit) -> None:
    """Each core takes rows of tiles through all stages."""
    output = inlined(schedule, STAGES)
    tile = extent(schedule, schedule.get_loops(schedule.get_sblock("inverse"))[0])
    count, y, _, channels = schedule.get_loops(output)
    rows, _ = schedule.split(y, [None, tile])
    rows, _ = tile_loop(schedule, rows, 2, LARGEST_TILE)
    loop = schedule.fuse(count, rows)
    vectorized(schedule, channels, unit)
    for stage in ("inverse", "bgemm", "data_pack"):
        schedule.compute_at(schedule.get_sblock(stage), loop, preserve_unit_loops=True)
    schedule.parallel(loop)
    _stages(schedule, unit)


def by_channels(schedule: Any, unit: VectorUnit) -> None:
    """Each core computes some output channels of all tiles, once the input is transformed."""
    output = inlined(schedule, STAGES)
    count, y, x, channels = schedule.get_loops(output)
    vectors, vector = vectorized(schedule, channels, unit)
    loop, inner = tile_loop(schedule, vectors, 2, REGISTER_VECTORS)
    schedule.reorder(loop, count, y, x, inner, vector)
    for stage in ("inverse", "bgemm"):
        schedule.compute_at(schedule.get_sblock(stage), loop, preserve_unit_loops=True)
    schedule.parallel(loop)
    _stages(schedule, unit)
    schedule.parallel(schedule.get_loops(schedule.get_sblock("data_pack"))[0])


SKETCHES: tuple[Sketch, ...] = (by_rows, by_channels)


def sketches(schedule: Any, unit: VectorUnit) -> tuple[Sketch, ...]:
    """Those of a kernel of Winograd's."""
    return (by_channels,) if divides_weights(schedule, "bgemm", unit) else SKETCHES


def _stages(schedule: Any, unit: VectorUnit) -> None:
    """What happens to a few tiles: transformed and back tile by tile, and multiplied between."""
    for stage in ("data_pack", "inverse"):
        *_, y, x, positions, channels, a, b = schedule.get_loops(schedule.get_sblock(stage))
        vectors, vector = vectorized(schedule, channels, unit)
        schedule.reorder(positions, vectors, y, x, a, b, vector)
        for loop in (y, x, a, b):
            schedule.unroll(loop)
        if stage == "data_pack":
            _gather(schedule, vectors)
    *_, y, x, positions, channels, depth = schedule.get_loops(schedule.get_sblock("bgemm"))
    depth, *steps = unrolled_steps(schedule, depth, unit.steps)
    p0, p1 = tile_loop(schedule, positions, 2, REGISTER_ROWS)
    vectors, vector = vectorized(schedule, channels, unit)
    c0, c1, c2 = tile_loop(schedule, vectors, 3, REGISTER_VECTORS)
    schedule.reorder(y, x, c0, p0, c1, depth, *steps, p1, c2, vector)
    schedule.unroll(p1)
    schedule.unroll(c2)


def _gather(schedule: Any, loop: Any) -> None:
    """One padded input tile at a time is read, its bounds tested once for each element."""
    block = schedule.get_sblock("input_tile")
    schedule.compute_at(block, loop, preserve_unit_loops=True)
    *_, y, x, _, channels = schedule.get_loops(block)
    schedule.unroll(y)
    schedule.unroll(x)
    schedule.vectorize(channels)
