"""A network lowered in every variant of its convolutions, and in the fastest ones."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hetfeat.workloads.winograd import Convolution
from hetfeat.workloads.winograd.variants import OPERATOR as WINOGRAD
from hetfeat.workloads.winograd.variants import Alternatives, choose_fastest, select_alternatives

if TYPE_CHECKING:
    from hetfeat.workloads.relax import NetworkTask


def extract_variant_tasks(prepared: Any, target: Any, tiles: Iterable[int]) -> list["NetworkTask"]:
    """Tasks of a network computed directly and with each of Winograd's tiles, each once.

    Args:
        prepared: Module from `workloads.relax.in_layout`, which all variants share.
        target: Target that it is compiled for.
        tiles: Sides of the output tiles of Winograd's algorithm.
    """
    from hetfeat.workloads.relax import extract_tasks, into_kernels

    tasks: dict[str, NetworkTask] = {}
    variants_with: Counter[str] = Counter()
    open_to_choice: set[Convolution] = set()
    variants = 0
    for tile in (None, *tiles):
        if variants and not open_to_choice:
            break  # no convolution has another way: all variants are this one
        lowered = into_kernels(prepared, target, partial(_always, tile, open_to_choice))
        variants += 1
        for task in extract_tasks(lowered, target):
            tasks.setdefault(task.task.hash, task)
            variants_with[task.task.hash] += 1
    return [replace(task, fixed=variants_with[name] == variants) for name, task in tasks.items()]


def count_occurrences(tasks: Iterable["NetworkTask"]) -> dict[str, int]:
    """How often a network runs each of its tasks, by hash; a convolution counts once."""
    return {t.task.hash: 0 if t.task.operator == WINOGRAD else t.weight for t in tasks}


def find_alternatives(tasks: Iterable["NetworkTask"]) -> Alternatives:
    """Convolution and tile of each task that another variant may replace, by hash."""
    return select_alternatives(task.task for task in tasks if not task.fixed)


def _always(tile: int | None, asked: set[Convolution], convolution: Convolution) -> int | None:
    """The same tile for each convolution that is asked about, all of which are kept."""
    asked.add(convolution)
    return tile


def lower_fastest(
    prepared: Any,
    target: Any,
    tasks: Sequence["NetworkTask"],
    latency_s: Mapping[str, float],
) -> Any:
    """The network lowered so that each convolution is computed by the fastest variant measured."""
    from hetfeat.workloads.relax import into_kernels

    weights = {task.task: task.weight for task in tasks}
    chosen = choose_fastest(weights, latency_s, find_alternatives(tasks))
    return into_kernels(prepared, target, chosen.get)
