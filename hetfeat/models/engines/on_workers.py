"""Training on the workers of a cluster: each holds whole tasks, and all make the same model.

The libraries add up what the workers found of each split, or average the gradients of each step.
Pairs never leave a task: each worker has the gradients of its programs by itself. All judge each
round on the whole valid side, and so end with the same one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hetfeat.cluster import wait_beside, wait_for_all
from hetfeat.features.batch import Batch, Examples
from hetfeat.features.cluster import ClusterBatch
from hetfeat.models.base import OnEpoch
from hetfeat.models.pairs import Pairs
from hetfeat.models.training_set import Side

if TYPE_CHECKING:
    from distributed import Client

Ints = npt.NDArray[np.int64]
Epochs = list[tuple[int, dict[str, float]]]
Meet = Callable[["Client", Sequence[str]], Sequence[Any]]
"""Callable that gives each of the workers what it needs to find the others."""
Train = Callable[[Any, int, Side, Side, OnEpoch | None], bytes]
"""Callable that trains on a worker, of what `Meet` gave it, its threads and both sides."""


def are_on_cluster(side: Side) -> bool:
    """Whether the features of a side are on workers."""
    return isinstance(side.examples.batch, ClusterBatch)


def train_on_workers(
    train: Side, valid: Side, on_epoch: OnEpoch | None, meet: Meet, train_there: Train
) -> bytes:
    """A model as bytes, trained where the features of the training side are.

    Args:
        train: Examples that are learnt from, on a cluster.
        valid: Examples that end the training, there as well.
        on_epoch: Function told of each round once all are done; None for none.
        meet: Function that gives each worker what it needs to find the others.
        train_there: Function that trains on each worker, of its share of the examples.

    Raises:
        WorkFailed: A worker was lost.
    """
    features, judged = train.examples.batch, valid.examples.batch
    assert isinstance(features, ClusterBatch)
    assert isinstance(judged, ClusterBatch)
    client = features.client
    shares = divide(train.examples, len(client.nthreads()))
    workers = sorted(client.nthreads())[: len(shares)]
    held = [
        [batch.gathered(worker) for batch in (features.take(rows), judged)]
        for worker, rows in zip(workers, shares, strict=True)
    ]
    # A worker that trains waits for the others, and would give them no features meanwhile.
    wait_beside(client, [each for of_worker in held for each in of_worker], workers)
    futures: list[Any] = []
    for worker, rows, batches, met in zip(
        workers, shares, held, meet(client, workers), strict=True
    ):
        sides = [_without_features(side) for side in (share_of(train, rows), valid)]
        told = on_epoch is not None and not futures  # all workers would tell the same
        futures.append(
            client.submit(
                *(_train_there, train_there, met, told),
                *client.scatter(sides, workers=[worker], direct=False, hash=False),
                *batches,
                workers=[worker],
                allow_other_workers=False,
                pure=False,
            )
        )
    model, epochs = wait_for_all(client, futures, workers)[0]
    for epoch, values in epochs:
        if on_epoch:
            on_epoch(epoch, values)
    return bytes(model)


def divide(examples: Examples, workers: int) -> list[Ints]:
    """Rows of at most so many workers, ascending: whole tasks, the largest first to who has least.

    A task is never divided, whatever its devices.
    """
    names, task, sizes = np.unique(
        examples.task.astype(str), return_inverse=True, return_counts=True
    )
    owner, load = np.zeros(len(names), np.int64), np.zeros(min(workers, len(names)), np.int64)
    for position in np.argsort(-sizes, kind="stable"):
        owner[position] = load.argmin()
        load[owner[position]] += sizes[position]
    return [np.flatnonzero(owner[task] == worker) for worker in range(len(load))]


def share_of(side: Side, rows: Ints) -> Side:
    """Some rows of a side, whole tasks, with the pairs that they have there."""
    place = np.full(len(side.examples), -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    pairs = side.pairs
    own = place[pairs.faster] >= 0
    faster, slower = place[pairs.faster[own]], place[pairs.slower[own]]
    part = Pairs(faster, slower, len(rows), weight=pairs.mean_weight)
    return Side(side.examples.take(rows), side.y[rows], side.groups[rows], part)


@dataclass(frozen=True)
class _Elsewhere:
    """The features of examples that are sent without them."""

    programs: int

    def __len__(self) -> int:
        return self.programs


def _without_features(side: Side) -> Side:
    batch: Any = _Elsewhere(len(side.examples))
    return replace(side, examples=replace(side.examples, batch=batch))


def _train_there(
    train_there: Train,
    met: Any,
    told: bool,
    train: Side,
    valid: Side,
    features: Batch,
    judged: Batch,
) -> tuple[bytes, Epochs]:
    """Called on a worker; only the first one tells of the rounds."""
    from distributed import get_worker

    epochs: Epochs = []

    def on_epoch(epoch: int, values: dict[str, float]) -> None:
        epochs.append((epoch, values))

    learn, check = (
        replace(side, examples=replace(side.examples, batch=batch))
        for side, batch in ((train, features), (valid, judged))
    )
    threads = get_worker().state.nthreads
    return train_there(met, threads, learn, check, on_epoch if told else None), epochs
