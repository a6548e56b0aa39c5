"""The sketch of kernels that turn a tensor: what lies together in the output does not in the input.

MetaSchedule writes the output in its order, so that each element read is on another line of the
cache, which is gone before its neighbours are needed. Here a core turns a block of as many rows as
a vector has elements: the lines of these rows stay at hand.
"""

import math
from typing import Any

from tvm.sym import detect_linear_equation
from tvm.sym.analyzer import Analyzer
from tvm.tirx.analysis import undefined_vars

from hetfeat.schedules.blocked import Sketch, extent, inlined, sums
from hetfeat.schedules.registers import VectorUnit


def is_transposition(schedule: Any, lanes: int) -> bool:
    """Whether a kernel sums nothing and reads along another axis of its output than the last.

    Args:
        schedule: Schedule of the kernel, which keeps its blocks.
        lanes: Elements of the narrowest vector.
    """
    if sums(schedule):
        return False
    copied = schedule.copy()
    output = inlined(copied)
    loops = copied.get_loops(output)
    return bool(loops) and extent(copied, loops[-1]) % lanes == 0 and _turned(copied, output) >= 0


def by_blocks(schedule: Any, unit: VectorUnit) -> None:
    """Each core turns some blocks, a vector of the output after another."""
    output = inlined(schedule)
    turned = _turned(schedule, output)
    *outer, last = schedule.get_loops(output)
    along = outer.pop(turned)
    columns, vector = schedule.split(last, [None, math.gcd(extent(schedule, last), unit.lanes)])
    schedule.reorder(*outer, columns, along, vector)
    schedule.vectorize(vector)
    schedule.parallel(schedule.fuse(*outer, columns))


SKETCHES: tuple[Sketch, ...] = (by_blocks,)


def _turned(schedule: Any, output: Any) -> int:
    """The axis of the output that the largest tensor read lies along; -1 if it is the last."""
    axes = schedule.get(output).iter_vars
    *others, last = [axis.var for axis in axes]
    read = max(schedule.get(output).reads, key=lambda read: math.prod(map(int, read.source.shape)))
    analyzer = Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, axis.dom)
    index = analyzer.simplify(read.region[-1].min)
    if last in undefined_vars(index):
        return -1
    for place, axis in enumerate(others):
        found = detect_linear_equation(index, [axis])
        if found and int(found[0]) == 1:
            return place
    return -1
