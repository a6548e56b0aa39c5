"""What a program computes, by the loops that the auto-scheduler tiled."""

from itertools import groupby
from typing import Any

from hetfeat.dataset.importers.ansor_tasks import UNKNOWN

_LEVELS = {4: 2, 3: 1}
"""Times that a loop is split: over outputs -> over what is summed; on a GPU, on a CPU."""
_OPERATORS = {
    (2, 1): "matmul",
    (3, 1): "matmul",
    (4, 3): "conv2d",
    (4, 2): "group_conv2d",
}
"""Loops of a tiled stage over outputs and over what is summed -> operator. A convolution in groups
or transposed has the loops of a plain one; a depthwise one has a sum less."""


def operator_of(steps: list[Any]) -> str:
    """The operator of steps that have been interpreted; `UNKNOWN` where they do not tell.

    A stage that reuses its inputs is tiled: all of its loops are split, then reordered. Where
    stages differ, as in Winograd's convolution, nothing is told.

    Args:
        steps: Steps as `take_numbers` left them.
    """
    found = set()
    splits: list[int] = []
    for (kind, stage), group in groupby(steps, key=lambda step: step[:2]):
        if kind == "SP":
            tiled, splits = stage, [step[4] for step in group]
        elif kind == "RE" and splits and stage == tiled:
            found.add(_by_splits(splits))
            splits = []
        else:
            splits = []
    return found.pop() if len(found) == 1 else UNKNOWN


def _by_splits(splits: list[int]) -> str:
    """The operator of a stage by how many times each of its loops is split."""
    outputs, sums = max(splits), min(splits)
    if _LEVELS.get(outputs) != sums or set(splits) != {outputs, sums}:
        return UNKNOWN
    return _OPERATORS.get((splits.count(outputs), splits.count(sums)), UNKNOWN)
