"""Which convolutions of a network are computed how, decided by what was measured."""

import math
from collections.abc import Iterable, Mapping

from hetfeat.records import Task
from hetfeat.workloads.winograd import TRANSFORMS, Convolution

OPERATOR = "winograd"
"""Anchor operator of a task that computes a convolution by Winograd's algorithm."""


Ways = Mapping[str, tuple[Convolution, int | None]]
"""Convolution that a task computes and the tile it uses, by the task's hash."""


def competing(tasks: Iterable[Task]) -> dict[str, tuple[Convolution, int | None]]:
    """Tasks, by hash, of the convolutions that are computed in more than one way.

    Args:
        tasks: Tasks of the network lowered in every way, less those that no way replaces: a dilated
            convolution has the shapes of another, and is always computed directly.
    """
    found = {task.hash: way for task in tasks if (way := convolution_of(task))}
    contested = {convolution for convolution, tile in found.values() if tile is not None}
    return {task: way for task, way in found.items() if way[0] in contested}


def convolution_of(task: Task) -> tuple[Convolution, int | None] | None:
    """The convolution that a task computes and the tile it uses, or None for other tasks."""
    if task.operator == "conv2d":
        return (task.shapes[0], task.shapes[1], task.shapes[-1]), None
    if task.operator == OPERATOR:
        side, _, *channels = task.shapes[1]
        return (task.shapes[0], (3, 3, *channels), task.shapes[-1]), side - 2
    return None


def choose_fastest(
    tasks: Mapping[Task, int], latency_s: Mapping[str, float], ways: Ways
) -> dict[Convolution, int]:
    """The tile of each convolution that is fastest by Winograd's algorithm.

    A convolution may be several tasks, with what follows it in their kernels; they are judged
    together. A way of which some task never ran is out; directly is the way where none is in.

    Args:
        tasks: Tasks of the network lowered in every way, with the number of times each occurs in
            its own.
        latency_s: Best latency in seconds of each task that ran, by hash.
        ways: Competing tasks from `competing`.
    """
    chosen: dict[Convolution, int] = {}
    for convolution, taken_s in _ways_s(tasks, latency_s, ways).items():
        fastest = min(taken_s, key=lambda tile: (taken_s[tile], tile is not None))
        if fastest in TRANSFORMS and taken_s[fastest] < math.inf:
            chosen[convolution] = fastest
    return chosen


def network_s(tasks: Mapping[Task, int], latency_s: Mapping[str, float], ways: Ways) -> float:
    """Seconds that a network's kernels add up to, each convolution computed in its fastest way.

    What has not run counts as nothing. Arguments as in `choose_fastest`.
    """
    others = {task: weight for task, weight in tasks.items() if task.hash not in ways}
    fastest = (min(taken_s.values()) for taken_s in _ways_s(tasks, latency_s, ways).values())
    return sum(weight * latency_s.get(task.hash, 0.0) for task, weight in others.items()) + sum(
        seconds for seconds in fastest if seconds < math.inf
    )


def _ways_s(
    tasks: Mapping[Task, int], latency_s: Mapping[str, float], ways: Ways
) -> dict[Convolution, dict[int | None, float]]:
    """Seconds that each way of a convolution takes; infinite where some task never ran."""
    totals: dict[Convolution, dict[int | None, float]] = {}
    for task, weight in tasks.items():
        if found := ways.get(task.hash):
            convolution, tile = found
            taken_s = totals.setdefault(convolution, {})
            seconds = latency_s.get(task.hash, math.inf)
            taken_s[tile] = taken_s.get(tile, 0.0) + weight * seconds
    return totals
