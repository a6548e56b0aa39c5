"""Features beyond one machine: the same functions, called by the workers of a Dask cluster.

    from dask.distributed import Client
    assembled = assemble(store, over(Client("tcp://scheduler:8786")))

Workers see the store under the same path and have the same hetfeat installed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hetfeat.features.assemble import Over

if TYPE_CHECKING:
    from distributed import Client

AHEAD_PER_THREAD = 2
"""Pieces a worker's thread has waiting: the caller holds no more than these at once."""


def over(client: "Client") -> Over:
    """What takes the place of `map`: the same results, in the same order."""

    def mapped(function: Callable[[Any], Any], items: Iterable[Any], /) -> Iterator[Any]:
        ahead = AHEAD_PER_THREAD * max(1, sum(client.nthreads().values()))
        waiting: deque[Any] = deque()
        for item in items:
            waiting.append(client.submit(function, item, pure=False))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    return mapped
