"""Naming a task after the computation that it is about."""

from collections.abc import Iterable
from string import digits

OPERATORS = (
    ("group_conv", "group_conv2d"),
    ("bgemm", "winograd"),
    ("conv2d", "conv2d"),
    ("matmul", "matmul"),
    ("pool_max", "max_pool2d"),
    ("pool", "avg_pool2d"),
    ("softmax", "softmax"),
)
"""Part of a reduction block's name -> anchor operator; the first that fits. Winograd's convolution
reduces in `bgemm`."""


def anchor_operator(reductions: Iterable[str]) -> str:
    """The operator of a task from the names of its blocks that reduce."""
    names = [name.rstrip(digits) for name in reductions]
    for part, operator in OPERATORS:
        if any(part in name for name in names):
            return operator
    return "reduction" if names else "elementwise"
