"""Features that stay on the workers of a Dask cluster; keys and latencies come here.

    with connected("tcp://scheduler:8786") as client:
        assembled = assemble_there(store, client)

What a worker held is computed again where the worker is lost: the records have it all.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hetfeat.cluster import need_sight, over, result_of
from hetfeat.dataset.store import RecordStore
from hetfeat.features.assemble import Assembled, Part, assemble, itself, no_records, work_over
from hetfeat.features.batch import Batch, Examples, Ints, concatenate, joined
from hetfeat.features.out_of_core import room_bytes

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")


@dataclass(frozen=True)
class ClusterBatch:
    """Programs whose features are on workers.

    Attributes:
        client: Client of the cluster.
        parts: Futures of the parts, as `Part[Examples]` each.
        starts: First program of each part, int64 [parts].
        programs: Programs, numbered through all parts, int64 [n].
    """

    client: "Client"
    parts: tuple[Any, ...]
    starts: Ints
    programs: Ints

    def __len__(self) -> int:
        return len(self.programs)

    def take(self, index: Ints) -> "ClusterBatch":
        """The programs of `index` (integer positions), in that order."""
        return replace(self, programs=self.programs[index])

    def pieces(self) -> "Sequence[ClusterBatch]":
        """The same in pieces of one part each: few where the order is that of the store."""
        borders = np.flatnonzero(np.diff(self._part_of(self.programs))) + 1
        return [replace(self, programs=piece) for piece in np.split(self.programs, borders)]

    def each(self, function: Callable[[Batch], T]) -> list[T]:
        """What a function says of each of `pieces`, where they are."""

        def items() -> Any:
            for piece in self.pieces():
                yield self.client.submit(_applied, function, *piece._place(), pure=False)

        return [result_of(future) for future in list(items())]

    def loaded(self) -> Batch:
        """All of them in memory, here."""
        return joined(self.each(itself))

    def gathered(self, worker: str) -> Any:
        """A future of all of them as a `Batch` on one worker."""
        parts = [
            self.client.submit(_applied, itself, *piece._place(), pure=False)
            for piece in self.pieces()
        ]
        return self.client.submit(
            joined, parts, workers=[worker], allow_other_workers=False, pure=False
        )

    def _place(self) -> tuple[Any, Ints]:
        """Of a piece: the future of its part, and the positions in it."""
        part = int(self._part_of(self.programs).max(initial=0))
        return self.parts[part], self.programs - self.starts[part]

    def _part_of(self, programs: Ints) -> Ints:
        return np.searchsorted(self.starts, programs, side="right") - 1


def assemble_there(
    store: RecordStore, client: "Client", devices: Collection[str] | None = None
) -> Assembled:
    """All usable records of a store, as `assemble` has them; their features stay on the workers.

    Args:
        store: Store whose records are assembled; the workers see it under the same path.
        client: Client of the cluster.
        devices: Names of the wanted devices; None, the default, for all.

    Raises:
        DataError: The store is empty or damaged, or a device has records and no profile.
        WorkFailed: A worker does not see the store, or the cluster was lost.
    """
    need_sight(client, store.path)
    store = RecordStore.open(store.path.resolve())  # they work elsewhere
    work, items = work_over(store, itself, None, devices)
    futures = [client.submit(work, item, pure=False) for item in items]
    parts: list[Part[Examples]] = list(over(client)(_without_features, futures))
    sizes = [len(part.result) for part in parts]
    if not any(sizes):
        raise no_records(store)
    starts = np.cumsum([0, *sizes[:-1]])
    batch = ClusterBatch(client, tuple(futures), starts, np.arange(sum(sizes)))
    return Assembled(
        concatenate([part.result for part in parts], batch),
        sum(part.without_features for part in parts),
        sum(part.duplicates for part in parts),
    )


def assembled_of(
    store: RecordStore, client: "Client | None", devices: Collection[str] | None
) -> Assembled:
    """All usable records of a store, on a cluster or here: in memory, beyond a share of it a file.

    Args:
        store: Store whose records are assembled.
        client: Client of the cluster; None for here.
        devices: Names of the wanted devices; None for all.

    Raises:
        DataError: The store is empty or damaged, or a device has records and no profile.
        WorkFailed: A worker does not see the store, or the cluster was lost.
    """
    if client is not None:
        return assemble_there(store, client, devices)
    return assemble(store, room_bytes=room_bytes(), devices=devices)


def _without_features(part: Part[Examples]) -> Part[Examples]:
    none = part.result.batch.take(np.empty(0, np.int64))
    return replace(part, result=replace(part.result, batch=none))


def _applied(function: Callable[[Batch], T], part: Part[Examples], index: Ints) -> T:
    return function(part.result.batch.loaded().take(index))
