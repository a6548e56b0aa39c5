"""Which variant computes each convolution of a network, decided by what was measured."""

import math
from collections.abc import Iterable, Mapping

from hetfeat.records import Task
from hetfeat.workloads.winograd import TRANSFORMS, Convolution

OPERATOR = "winograd"
"""Anchor operator of a task that computes a convolution by Winograd's algorithm."""

Alternatives = Mapping[str, tuple[Convolution, int | None]]
"""Convolution that a task computes and the tile it uses, by the task's hash."""


def select_alternatives(tasks: Iterable[Task]) -> dict[str, tuple[Convolution, int | None]]:
    """Tasks, by hash, of the convolutions that are computed in more than one variant.

    Args:
        tasks: Tasks of the network lowered in every variant, less those that none replaces: a
            dilated convolution has the shapes of another, and is always computed directly.
    """
    variants = {task.hash: variant for task in tasks if (variant := convolution_of(task))}
    with_tiles = {convolution for convolution, tile in variants.values() if tile is not None}
    return {task: variant for task, variant in variants.items() if variant[0] in with_tiles}


def convolution_of(task: Task) -> tuple[Convolution, int | None] | None:
    """The convolution that a task computes and the tile it uses, or None for other tasks."""
    if task.operator == "conv2d":
        return (task.shapes[0], task.shapes[1], task.shapes[-1]), None
    if task.operator == OPERATOR:
        side, _, *channels = task.shapes[1]
        return (task.shapes[0], (3, 3, *channels), task.shapes[-1]), side - 2
    return None


def choose_fastest(
    tasks: Mapping[Task, int], latency_s: Mapping[str, float], alternatives: Alternatives
) -> dict[Convolution, int]:
    """The tile of each convolution that is fastest by Winograd's algorithm.

    A convolution may be several tasks, with what follows it in their kernels; they are timed
    together. A variant of which some task never ran is out; without any it is computed directly.

    Args:
        tasks: Tasks of the network lowered in every variant, with the number of times each
            occurs in its own.
        latency_s: Best latency in seconds of each task that ran, by hash.
        alternatives: Variant of each task that has another, from `select_alternatives`.
    """
    chosen: dict[Convolution, int] = {}
    for convolution, taken_s in _variants_s(tasks, latency_s, alternatives).items():
        fastest = min(taken_s, key=lambda tile: (taken_s[tile], tile is not None))
        if fastest in TRANSFORMS and taken_s[fastest] < math.inf:
            chosen[convolution] = fastest
    return chosen


def network_s(
    tasks: Mapping[Task, int], latency_s: Mapping[str, float], alternatives: Alternatives
) -> float:
    """Seconds that a network's kernels add up to, each convolution by its fastest variant.

    What has not run counts as nothing. Arguments as in `choose_fastest`.
    """
    others = {task: weight for task, weight in tasks.items() if task.hash not in alternatives}
    fastest = (
        min(taken_s.values()) for taken_s in _variants_s(tasks, latency_s, alternatives).values()
    )
    return sum(weight * latency_s.get(task.hash, 0.0) for task, weight in others.items()) + sum(
        seconds for seconds in fastest if seconds < math.inf
    )


def _variants_s(
    tasks: Mapping[Task, int], latency_s: Mapping[str, float], alternatives: Alternatives
) -> dict[Convolution, dict[int | None, float]]:
    """Seconds that each variant of a convolution takes; infinite where some task never ran."""
    totals: dict[Convolution, dict[int | None, float]] = {}
    for task, weight in tasks.items():
        if variant := alternatives.get(task.hash):
            convolution, tile = variant
            taken_s = totals.setdefault(convolution, {})
            seconds = latency_s.get(task.hash, math.inf)
            taken_s[tile] = taken_s.get(tile, 0.0) + weight * seconds
    return totals
