"""Traces that keep to the threads of a GPU, by their decisions alone.

MetaSchedule's rules for CUDA tile every loop freely, and TVM refuses the programs whose blocks have
too few threads or too many: six in seven of a convolution's. To apply a trace to learn that takes
tens of milliseconds, to multiply its factors tens of microseconds.
"""

import math
from collections.abc import Callable

from hetfeat.schedules.trace import TILE, Trace

MAX_VTHREADS = 8
"""What TVM's VerifyGPUCode allows."""
WARP = 32
LOW = "meta_schedule.thread_extent_low_inclusive"
HIGH = "meta_schedule.thread_extent_high_inclusive"


def first_kept(
    draw: Callable[[], Trace | None], keep: Callable[[Trace], bool], *, draws: int = 1000
) -> Trace | None:
    """The first of the traces drawn that is kept; None where none is, or none is drawn.

    Args:
        draw: Source of traces; None where it has no more.
        keep: Whether a trace will do.
        draws: Most traces drawn; 1000 by default: six in seven are refused, on hard tasks more.
    """
    for _ in range(draws):
        trace = draw()
        if trace is None or keep(trace):
            return trace
    return None


def keeps_to_threads(trace: Trace) -> bool:
    """Whether the threads of a block are as many as the trace's own annotations allow.

    True of a trace that binds no loop to threads, as those for CPUs, or that does not tell how long
    such a loop is.
    """
    instructions, decisions = trace
    chosen = dict(decisions)
    extents: dict[str, int] = {}
    threads, of_each = None, 1
    for index, (kind, inputs, attributes, outputs) in enumerate(instructions):
        if kind == TILE and index in chosen:
            extents |= zip(outputs, chosen[index], strict=True)
        elif kind == "Split":
            known = zip(outputs, inputs[1:], strict=True)
            extents |= {loop: extents[factor] for loop, factor in known if factor in extents}
        elif kind == "Fuse" and all(loop in extents for loop in inputs):
            extents[outputs[0]] = math.prod(extents[loop] for loop in inputs)
        elif kind == "Bind" and attributes[0].startswith("vthread"):
            if extents.get(inputs[0], 1) > MAX_VTHREADS:
                return False
        elif kind == "Bind" and attributes[0].startswith("threadIdx"):
            threads = extents.get(inputs[0])
        elif kind == "Annotate" and attributes[0] == "warp_execution":
            of_each = WARP  # what is bound to threads runs on tensor cores, each by a warp
        elif kind == "Annotate" and threads is not None:
            too_few = attributes[0] == LOW and of_each * threads < inputs[1]
            too_many = attributes[0] == HIGH and of_each * threads > inputs[1]
            if too_few or too_many:
                return False
    return True
