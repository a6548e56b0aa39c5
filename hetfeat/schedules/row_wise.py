"""The sketch of kernels that reduce each row of their output: softmax, layer normalisation.

MetaSchedule takes all rows through one stage and then through the next, in vectors of several
registers, of which LLVM computes functions one element at a time. Here a core takes each row
through all stages, in single registers, and sums and maxima have an accumulator for each lane.
"""

import math
from typing import Any

from hetfeat.schedules.blocked import REDUCTION, Sketch, blocks, extent, sums
from hetfeat.schedules.registers import VectorUnit


def is_row_wise(schedule: Any, lanes: int, least_rows: int = 8) -> bool:
    """Whether all sums are over the last axis of the output, which fills vectors, of many rows.

    Args:
        schedule: Schedule of the kernel.
        lanes: Elements of the narrowest vector.
        least_rows: Fewest rows that are many, which cores share; 8 by default.
    """
    found = sums(schedule)
    *_, output = blocks(schedule)
    loops = schedule.get_loops(_get(schedule, output))
    if not found or output in found or not loops:
        return False
    *rows, row = (extent(schedule, loop) for loop in loops)
    if row % lanes or math.prod(rows) < least_rows:
        return False
    return all(_is_along_rows(schedule, name, rows, row) for name in found)


def _is_along_rows(schedule: Any, name: str, rows: list[int], row: int) -> bool:
    """Whether a block has a number for each row, reduced from as many elements as the output's."""
    block = schedule.get(_get(schedule, name))
    axes = block.iter_vars
    kinds = [int(axis.iter_type) for axis in axes]
    extents = [int(axis.dom.extent) for axis in axes]
    outer = extents[: len(rows)] == rows and set(extents[len(rows) : -1]) <= {1}
    reduces = kinds.index(REDUCTION) == len(kinds) - 1 and extents[-1] == row
    in_order = any(read.region[-1].min.same_as(axes[-1].var) for read in block.reads)
    return outer and reduces and in_order


def by_whole_rows(schedule: Any, unit: VectorUnit) -> None:
    """Each core computes some rows of the output, one after another, through all stages."""
    found, (*others, output) = sums(schedule), blocks(schedule)
    for name in others:
        block = _get(schedule, name)
        if name not in found and len(schedule.get_consumers(block)) == 1:
            schedule.compute_inline(block)
    stages = [name for name in blocks(schedule) if name != output]
    *rows, _ = schedule.get_loops(_get(schedule, output))
    lanes = {name: _of_lanes(schedule, _get(schedule, name), unit, len(rows)) for name in found}
    row = schedule.fuse(*rows)
    schedule.parallel(row)
    for name in reversed(stages):
        schedule.compute_at(_get(schedule, name), row, preserve_unit_loops=True)
        if name in lanes:
            schedule.compute_at(lanes[name], row, preserve_unit_loops=True)
            _accumulated(schedule, lanes[name])
        else:
            _vectorized(schedule, _get(schedule, name), unit)
    _vectorized(schedule, _get(schedule, output), unit)


SKETCHES: tuple[Sketch, ...] = (by_whole_rows,)


def _of_lanes(schedule: Any, block: Any, unit: VectorUnit, rank: int) -> Any:
    """A block that reduces a row to one number for each lane, which `block` then reduces."""
    *_, along = schedule.get_loops(block)
    width = math.gcd(extent(schedule, along), unit.lanes)
    _, lane = schedule.split(along, [None, width])
    return schedule.rfactor(lane, rank)


def _accumulated(schedule: Any, block: Any) -> None:
    """Vectors of a row one after another, added to one that begins as nothing."""
    kinds = [int(axis.iter_type) for axis in schedule.get(block).iter_vars]
    own = schedule.get_loops(block)[-len(kinds) :]
    vectors = own[kinds.index(REDUCTION)]
    (lane,) = (loop for loop in own if not loop.same_as(vectors) and extent(schedule, loop) > 1)
    schedule.reorder(vectors, lane)
    schedule.vectorize(lane)
    schedule.decompose_reduction(block, vectors)


def _vectorized(schedule: Any, block: Any, unit: VectorUnit) -> None:
    *_, along = schedule.get_loops(block)
    if extent(schedule, along) > 1:
        width = math.gcd(extent(schedule, along), unit.lanes)
        _, vector = schedule.split(along, [None, width])
        schedule.vectorize(vector)


def _get(schedule: Any, name: str) -> Any:
    return schedule.get_sblock(name)
