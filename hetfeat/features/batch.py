"""Programs as the arrays a cost model reads."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Batch:
    """Features of n programs; S is the number of buffer stores of all of them together.

    Attributes:
        stores: Per-store features, float32 [S, 164]; the rows of program i are
            `offsets[i]:offsets[i + 1]`.
        offsets: int64 [n + 1].
        task: Task features, float32 [n, len(columns.task)].
        hardware: Hardware features, float32 [n, len(columns.hardware)]; NaN where the hardware
            class lacks the parameter.
    """

    stores: Floats
    offsets: npt.NDArray[np.int64]
    task: Floats
    hardware: Floats

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, index: npt.NDArray[np.int64]) -> "Batch":
        """The programs of `index` (integer positions), in that order."""
        counts = np.diff(self.offsets)[index]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        rows = np.repeat(self.offsets[index], counts) + within
        return Batch(self.stores[rows], offsets, self.task[index], self.hardware[index])


@dataclass(frozen=True)
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

    batch: Batch
    latency_s: npt.NDArray[np.float64]
    task: npt.NDArray[np.object_]
    device: npt.NDArray[np.object_]
    operator: npt.NDArray[np.object_]
    program: npt.NDArray[np.object_]
    shapes: npt.NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.latency_s)

    def take(self, index: npt.NDArray[np.int64]) -> "Examples":
        """The examples of `index` (integer positions), in that order."""
        return Examples(
            self.batch.take(index),
            self.latency_s[index],
            self.task[index],
            self.device[index],
            self.operator[index],
            self.program[index],
            self.shapes[index],
        )


def concatenate(parts: Sequence[Examples]) -> Examples:
    """Examples one after the other; there must be at least one part."""
    batches = [part.batch for part in parts]
    starts = np.cumsum([0, *(len(batch.stores) for batch in batches)])
    ends = [batch.offsets[1:] + start for batch, start in zip(batches, starts, strict=False)]
    batch = Batch(
        np.concatenate([batch.stores for batch in batches]),
        np.concatenate([np.zeros(1, np.int64), *ends]),
        np.concatenate([batch.task for batch in batches]),
        np.concatenate([batch.hardware for batch in batches]),
    )
    columns = [field.name for field in fields(Examples) if field.name != "batch"]
    return Examples(batch, *(np.concatenate([getattr(p, c) for p in parts]) for c in columns))
