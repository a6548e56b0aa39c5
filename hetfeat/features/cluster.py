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


def over(client: "Client", ahead_per_thread: int = 2) -> Over:
    """What takes the place of `map`: the same results, in the same order.

    Args:
        client: Client of the cluster.
        ahead_per_thread: Pieces a worker's thread has waiting, the most that the caller holds at
            once; 2 by default.
    """

    def mapped(function: Callable[[Any], Any], items: Iterable[Any], /) -> Iterator[Any]:
        ahead = ahead_per_thread * max(1, sum(client.nthreads().values()))
        waiting: deque[Any] = deque()
        for item in items:
            waiting.append(client.submit(function, item, pure=False))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    return mapped
