"""Batches of programs as tensors that a network can read: standardised, and no NaN among them.

The sequence that a network reads is that of a program's stores, each with its relation to task
and device, or, if it learnt from programs that only their traces tell of, that of the schedule's
primitives.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from hetfeat.features.batch import Batch, Floats
from hetfeat.features.columns import HARDWARE, RELATIVE, STORE, TASK, TRACE
from hetfeat.features.trace import KINDS, WORDS
from hetfeat.models.engines import together
from hetfeat.models.relative import relative_features

Doubles = npt.NDArray[np.float64]

CONTEXT_WIDTH = len(TRACE) + len(TASK) + 2 * len(HARDWARE)


@dataclass(frozen=True)
class Inputs:
    """n programs; S is the number of steps of all their sequences together.

    Attributes:
        steps: Vectors of the sequences end to end, float32 [S, w].
        lengths: Number of steps of each program, int64 [n].
        context: Trace, task, hardware, and which hardware figures there are, float32 [n, c].
    """

    steps: torch.Tensor
    lengths: torch.Tensor
    context: torch.Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, index: torch.Tensor) -> "Inputs":
        """The programs of `index`, in that order."""
        counts = self.lengths[index]
        ends = torch.cumsum(self.lengths, 0)
        starts = (ends - self.lengths)[index]
        own = torch.cumsum(counts, 0) - counts
        within = torch.arange(int(counts.sum())) - torch.repeat_interleave(own, counts)
        rows = torch.repeat_interleave(starts, counts) + within
        return Inputs(self.steps[rows], counts, self.context[index])

    @property
    def program(self) -> torch.Tensor:
        """Which program each step is of, int64 [S]."""
        return torch.repeat_interleave(torch.arange(len(self)), self.lengths)


@dataclass(frozen=True)
class Scaling:
    """Mean and scale of each column over the training side.

    Attributes:
        tensors: Mean and scale of the columns, float32, by name, which is one of `NAMES`.
        farthest: Standard deviations from the mean at most; 6.0 by default: an unseen device must
            not drown all else.
    """

    NAMES = ("steps.mean", "steps.scale", "context.mean", "context.scale")

    tensors: dict[str, torch.Tensor]
    farthest: float = 6.0

    @classmethod
    def of(cls, batch: Batch, flat: float = 1e-3) -> Self:
        """The scaling that standardises a batch, with those of all that train together.

        A column that varies by less than `flat` says nothing, and is not blown up.
        """
        tensors = {}
        steps = _stores(batch) if len(batch.stores) else _primitives(batch.steps)
        for name, values in (("steps", steps), ("context", _context(batch))):
            mean, scale = _pooled(together.of_all(_moments(values)))
            scale[scale < flat] = 1
            tensors[f"{name}.mean"] = torch.tensor(mean, dtype=torch.float32)
            tensors[f"{name}.scale"] = torch.tensor(scale, dtype=torch.float32)
        return cls(tensors)

    def __call__(self, batch: Batch) -> Inputs:
        """The programs of a batch, standardised."""
        if self.step_width == len(STORE) + len(RELATIVE):
            steps, offsets = _stores(batch), batch.offsets
        else:
            steps, offsets = _primitives(batch.steps), batch.step_offsets
        return Inputs(
            self._scaled("steps", steps),
            torch.from_numpy(np.diff(offsets)),
            self._scaled("context", _context(batch)),
        )

    @property
    def step_width(self) -> int:
        """Numbers in a step; it tells stores from primitives."""
        return len(self.tensors["steps.mean"])

    def _scaled(self, name: str, values: npt.NDArray[np.float32]) -> torch.Tensor:
        mean, scale = self.tensors[f"{name}.mean"], self.tensors[f"{name}.scale"]
        scaled = (torch.from_numpy(np.ascontiguousarray(values)) - mean) / scale
        # A figure that the class of hardware lacks is as far from its mean as nothing at all;
        # that it is lacking stands in a column of its own.
        return scaled.clamp(-self.farthest, self.farthest).nan_to_num(0.0)


def _moments(values: Floats) -> tuple[Doubles, Doubles, Doubles]:
    """Count, mean and variance of the finite numbers of each column."""
    known = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
    count = np.isfinite(known).sum(axis=0).astype(np.float64)
    some = count > 0
    mean, variance = np.zeros(known.shape[1]), np.ones(known.shape[1])
    mean[some] = np.nanmean(known[:, some], axis=0)
    variance[some] = np.nanvar(known[:, some], axis=0)
    return count, mean, variance


def _pooled(moments: Sequence[tuple[Doubles, Doubles, Doubles]]) -> tuple[Doubles, Doubles]:
    """Mean and standard deviation of each column over all parts; 0 and 1 of a column of nothing."""
    count, mean, variance = map(np.array, zip(*moments, strict=True))
    share = np.where(count.sum(0) > 0, count / np.maximum(count.sum(0), 1), 1 / len(moments))
    middle = (share * mean).sum(0)
    return middle, np.sqrt((share * (variance + (mean - middle) ** 2)).sum(0))


def _context(batch: Batch) -> npt.NDArray[np.float32]:
    lacking = np.isnan(batch.hardware).astype(np.float32)
    return np.concatenate([batch.trace, batch.task, batch.hardware, lacking], axis=1)


def _stores(batch: Batch) -> npt.NDArray[np.float32]:
    program = np.repeat(np.arange(len(batch)), np.diff(batch.offsets))
    relation = relative_features(batch.stores, batch.task[program], batch.hardware[program])
    return np.concatenate([batch.stores, relation], axis=1)


def _primitives(steps: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Steps of traces with a column for each primitive and each word in place of their numbers."""
    kinds, words = np.eye(KINDS, dtype=np.float32), np.eye(WORDS, dtype=np.float32)
    kind, word = steps[:, 0].astype(np.int64), steps[:, 1].astype(np.int64)
    return np.concatenate([kinds[kind], words[word], steps[:, 2:]], axis=1)
