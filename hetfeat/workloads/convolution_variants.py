"""A network lowered in every way its convolutions can be computed, and the way that was fastest."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hetfeat.workloads.winograd import Convolution
from hetfeat.workloads.winograd.variants import OPERATOR as WINOGRAD
from hetfeat.workloads.winograd.variants import Ways, choose_fastest, competing

if TYPE_CHECKING:
    from hetfeat.workloads.relax import NetworkTask


def tasks_of_all_ways(prepared: Any, target: Any, tiles: Iterable[int]) -> list["NetworkTask"]:
    """Tasks of a network computed directly and with each of Winograd's tiles, each once.

    Args:
        prepared: Module from `workloads.relax.in_layout`, which all ways share.
        target: Target that it is compiled for.
        tiles: Sides of the output tiles of Winograd's algorithm.
    """
    from hetfeat.workloads.relax import extract_tasks, into_kernels

    found: dict[str, NetworkTask] = {}
    ways = [None, *tiles]
    occurs: Counter[str] = Counter()
    for tile in ways:
        lowered = into_kernels(prepared, target, partial(_always, tile))
        for task in extract_tasks(lowered, target):
            found.setdefault(task.task.hash, task)
            occurs[task.task.hash] += 1
    return [replace(t, fixed=occurs[name] == len(ways)) for name, t in found.items()]


def occurrences(tasks: Iterable["NetworkTask"]) -> dict[str, int]:
    """How often a network runs each of its tasks, by hash; a convolution counts in one way."""
    return {t.task.hash: 0 if t.task.operator == WINOGRAD else t.weight for t in tasks}


def contested(tasks: Iterable["NetworkTask"]) -> Ways:
    """What tasks of which another way may take the place compute, and how, by hash."""
    return competing(task.task for task in tasks if not task.fixed)


def _always(tile: int | None, _: Convolution) -> int | None:
    return tile


def lower_fastest(
    prepared: Any,
    target: Any,
    tasks: Sequence["NetworkTask"],
    latency_s: Mapping[str, float],
) -> Any:
    """The network lowered so that each convolution is computed in the fastest way measured."""
    from hetfeat.workloads.relax import into_kernels

    weights = {task.task: task.weight for task in tasks}
    chosen = choose_fastest(weights, latency_s, contested(tasks))
    return into_kernels(prepared, target, chosen.get)
