"""A network lowered in every way its convolutions can be computed, and the way that was fastest."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hetfeat.workloads.winograd import Convolution
from hetfeat.workloads.winograd.choice import choose_fastest

if TYPE_CHECKING:
    from hetfeat.workloads.tvm import NetworkTask


def tasks_of_all_ways(prepared: Any, target: Any, tiles: Iterable[int]) -> list["NetworkTask"]:
    """Tasks of a network computed directly and with each of Winograd's tiles, each once.

    Args:
        prepared: From `workloads.tvm.in_layout`, which all ways share.
        target: What it is compiled for.
        tiles: Winograd's tiles.
    """
    from hetfeat.workloads.tvm import extract_tasks, into_kernels

    found: dict[str, NetworkTask] = {}
    for tile in (None, *tiles):
        lowered = into_kernels(prepared, target, partial(_always, tile))
        for task in extract_tasks(lowered, target):
            found.setdefault(task.task.hash, task)
    return list(found.values())


def _always(tile: int | None, _: Convolution) -> int | None:
    return tile


def lower_fastest(
    prepared: Any,
    target: Any,
    tasks: Sequence["NetworkTask"],
    latency_s: Mapping[str, float],
) -> Any:
    """The network lowered so that each convolution is computed in the fastest way measured."""
    from hetfeat.workloads.tvm import into_kernels

    chosen = choose_fastest({task.task: task.weight for task in tasks}, latency_s)
    return into_kernels(prepared, target, chosen.get)
