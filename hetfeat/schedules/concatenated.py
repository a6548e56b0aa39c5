"""The sketch of concatenations along channels, and of what follows them element by element.

MetaSchedule's vectors cross from one input to the next, so each of their elements asks which input
it is of. Here the channels are cut into pieces that lie in one input each, and no element asks.
"""

import math
from collections.abc import Iterator
from typing import Any

from tvm.sym import detect_linear_equation

from hetfeat.schedules.blocked import Sketch, blocks, extent, inlined, sums
from hetfeat.schedules.registers import VectorUnit

LARGEST_PIECE = 128
"""Most elements of a piece, which is one vector to LLVM."""


def is_concatenation(schedule: Any, *, shortest: int = 4, most_pieces: int = 64) -> bool:
    """Whether a kernel sums nothing and reads different tensors for different channels.

    Args:
        schedule: Schedule of the kernel, which keeps its blocks.
        shortest: Fewest elements of a piece; 4 by default.
        most_pieces: Most pieces of a row, each code of its own; 64 by default.
    """
    if sums(schedule):
        return False
    copied = schedule.copy()
    *_, channels = copied.get_loops(inlined(copied))
    piece = _piece(copied, extent(copied, channels))
    return shortest <= piece < extent(copied, channels) <= piece * most_pieces


def by_pieces(schedule: Any, unit: VectorUnit) -> None:
    """Each core computes some rows of the output, each of them piece by piece.

    Vectors of several registers are meant: of pieces of one register each, LLVM took minutes.
    """
    *rows, channels = schedule.get_loops(inlined(schedule))
    pieces, piece = schedule.split(channels, [None, _piece(schedule, extent(schedule, channels))])
    schedule.vectorize(piece)
    schedule.unroll(pieces)
    schedule.parallel(schedule.fuse(*rows))


SKETCHES: tuple[Sketch, ...] = (by_pieces,)


def _piece(schedule: Any, channels: int) -> int:
    """Channels of a piece: the most that divide what lies between any two changes of input.

    All channels where there is no such change.
    """
    (output,) = map(schedule.get_sblock, blocks(schedule))
    common = math.gcd(channels, *_changes(schedule.get(output)))
    if common == channels:
        return channels
    return max(size for size in range(1, LARGEST_PIECE + 1) if common % size == 0)


def _changes(block: Any) -> Iterator[int]:
    """Channels from which on a block reads another tensor: that one's first is read there."""
    channel = block.iter_vars[-1].var
    for read in block.reads:
        stride, offset = detect_linear_equation(read.region[-1].min, [channel]) or (0, 0)
        if int(stride) == 1 and int(offset) < 0:
            yield -int(offset)
