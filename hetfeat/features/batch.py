"""Programs as the arrays a cost model reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
T = TypeVar("T")


class Features(Protocol):
    """Features of n programs, wherever they are.

    A `Batch`, `out_of_core.SpilledBatch` or `cluster.ClusterBatch`.
    """

    def __len__(self) -> int: ...

    def take(self, index: Ints) -> "Features":
        """The programs of `index` (integer positions), in that order."""

    def pieces(self) -> "Sequence[Features]":
        """The same programs in the same order, in pieces that fit into memory."""

    def each(self, function: "Callable[[Batch], T]") -> list[T]:
        """What a function says of each of `pieces`, in order; it may be called elsewhere."""

    def loaded(self) -> "Batch":
        """All of them in memory."""


def have_stores(batch: Features) -> bool:
    """Whether any of the programs has per-store features."""
    return any(batch.each(_stores))


def _stores(batch: "Batch") -> int:
    return len(batch.stores)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Features of n programs; S is the number of buffer stores of all of them, P that of the steps.

    Attributes:
        stores: Per-store features, float32 [S, 164]; the rows of program i are
            `offsets[i]:offsets[i + 1]`, none for a program that only its trace tells of.
        offsets: First row of each program in `stores`, and the end of the last, int64 [n + 1].
        trace: Trace of the schedule as a vector, float32 [n, len(columns.TRACE)].
        steps: Trace as a sequence of primitives (`trace.steps`), float32 [P, trace.WIDTH].
        step_offsets: First row of each program in `steps`, and the end of the last, int64 [n + 1].
        task: Task features, float32 [n, len(columns.task)].
        hardware: Hardware features, float32 [n, len(columns.hardware)]; NaN where the hardware
            class lacks the parameter.
    """

    stores: Floats
    offsets: Ints
    trace: Floats
    steps: Floats
    step_offsets: Ints
    task: Floats
    hardware: Floats

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, index: Ints) -> "Batch":
        """The programs of `index` (integer positions), in that order."""
        stores, offsets = _taken(self.offsets, index)
        steps, step_offsets = _taken(self.step_offsets, index)
        return Batch(
            stores=self.stores[stores],
            offsets=offsets,
            trace=self.trace[index],
            steps=self.steps[steps],
            step_offsets=step_offsets,
            task=self.task[index],
            hardware=self.hardware[index],
        )

    def pieces(self) -> "Sequence[Batch]":
        """Itself: it is in memory."""
        return [self]

    def each(self, function: "Callable[[Batch], T]") -> list[T]:
        """What a function says of it."""
        return [function(self)]

    def loaded(self) -> "Batch":
        """Itself."""
        return self

    def without_stores(self) -> "Batch":
        """The same programs as their traces, tasks and devices tell of them."""
        # A copy, or the view would keep all stores in memory.
        return replace(self, stores=self.stores[:0].copy(), offsets=np.zeros_like(self.offsets))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(getattr(self, field.name).nbytes for field in fields(self))


def _taken(offsets: Ints, index: Ints) -> tuple[Ints, Ints]:
    """The rows of the programs of `index`, and where each one's begin among them."""
    counts = np.diff(offsets)[index]
    taken = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    within = np.arange(taken[-1]) - np.repeat(taken[:-1], counts)
    return np.repeat(offsets[index], counts) + within, taken


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Measured programs, ready to train or test on.

    Attributes:
        batch: Features of n programs.
        latency_s: Median latency in seconds, float64 [n]; NaN for a failed program.
        task: Task hash of each program, object [n].
        device: Device name of each program, object [n].
        operator: Anchor operator of each program, object [n].
        program: Program key of each, object [n].
        shapes: Argument shapes of each program's task as JSON, object [n].
    """

    batch: Features
    latency_s: npt.NDArray[np.float64]
    task: npt.NDArray[np.object_]
    device: npt.NDArray[np.object_]
    operator: npt.NDArray[np.object_]
    program: npt.NDArray[np.object_]
    shapes: npt.NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.latency_s)

    def take(self, index: Ints) -> "Examples":
        """The examples of `index` (integer positions), in that order."""
        return Examples(
            batch=self.batch.take(index),
            latency_s=self.latency_s[index],
            task=self.task[index],
            device=self.device[index],
            operator=self.operator[index],
            program=self.program[index],
            shapes=self.shapes[index],
        )


def concatenate(parts: Sequence[Examples], batch: Features) -> Examples:
    """Examples one after the other; `batch` has the features of all of them."""
    columns = [field.name for field in fields(Examples) if field.name != "batch"]
    joint = {c: np.concatenate([getattr(p, c) for p in parts]) for c in columns}
    return Examples(batch=batch, **joint)


def joined(batches: Sequence[Batch]) -> Batch:
    """Batches one after the other; there must be at least one."""
    return Batch(
        stores=np.concatenate([batch.stores for batch in batches]),
        offsets=_end_to_end([batch.offsets for batch in batches]),
        trace=np.concatenate([batch.trace for batch in batches]),
        steps=np.concatenate([batch.steps for batch in batches]),
        step_offsets=_end_to_end([batch.step_offsets for batch in batches]),
        task=np.concatenate([batch.task for batch in batches]),
        hardware=np.concatenate([batch.hardware for batch in batches]),
    )


def _end_to_end(offsets: Sequence[Ints]) -> Ints:
    """Where the rows of each program begin, once the rows of all parts lie end to end."""
    starts = np.cumsum([0, *(part[-1] for part in offsets)])
    ends = [part[1:] + start for part, start in zip(offsets, starts, strict=False)]
    return np.concatenate([np.zeros(1, np.int64), *ends])
