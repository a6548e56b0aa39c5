"""A pairwise loss inside tasks: programs of different tasks or devices are never compared."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetfeat.features.batch import Examples
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import NOISE, by_group

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_PAIRS = 64
"""Pairs drawn per program, at most; all pairs of a task of 10,000 programs would not fit."""


@dataclass(frozen=True)
class Pairs:
    """Pairs whose first program is faster than its second by more than the noise.

    Attributes:
        faster: Positions, int64 [p].
        slower: Positions, int64 [p].
        programs: How many programs the positions range over.
    """

    faster: Ints
    slower: Ints
    programs: int

    def __len__(self) -> int:
        return len(self.faster)

    def gradient(self, margins: Floats) -> tuple[Floats, Floats]:
        """First and second derivatives of the loss by each margin, both float64 [programs].

        The loss of a pair is log(1 + exp(margin of the slower - margin of the faster)), scaled
        so that a program carries the weight of one on average.
        """
        wrong = 1 / (1 + np.exp(margins[self.faster] - margins[self.slower]))
        scale = self.programs / (2 * max(1, len(self)))
        slope, bend = scale * wrong, scale * wrong * (1 - wrong)
        n = self.programs
        gradient = _sums(self.slower, slope, n) - _sums(self.faster, slope, n)
        hessian = _sums(self.slower, bend, n) + _sums(self.faster, bend, n)
        return gradient, hessian

    def loss(self, margins: Floats) -> float:
        """Mean loss of a pair."""
        return float(np.logaddexp(0, margins[self.slower] - margins[self.faster]).mean())


def pairs_of(examples: Examples, seed: int = 0, noise: float = NOISE) -> Pairs:
    """The pairs of each task on each device; a failed program is slower than any other.

    Args:
        examples: n measured programs.
        seed: For drawing among the pairs of large tasks.
        noise: Least relative difference of latencies, as a share.
    """
    rng = np.random.default_rng(seed)
    with np.errstate(divide="ignore"):
        slowness = np.log(np.nan_to_num(examples.latency_s, nan=np.inf))
    faster: list[Ints] = []
    slower: list[Ints] = []
    for rows in by_group(group_codes(examples)[0]):
        if len(rows) > 2 * MOST_PAIRS:
            first = np.repeat(rows, MOST_PAIRS)
            second = rng.choice(rows, len(first))
        else:
            i, j = np.triu_indices(len(rows), k=1)
            first, second = rows[i], rows[j]
        with np.errstate(invalid="ignore"):  # two failures: inf - inf
            lead = slowness[second] - slowness[first]
        faster += [first[lead > np.log1p(noise)], second[-lead > np.log1p(noise)]]
        slower += [second[lead > np.log1p(noise)], first[-lead > np.log1p(noise)]]
    none = [np.empty(0, np.int64)]
    return Pairs(np.concatenate(none + faster), np.concatenate(none + slower), len(examples))


def _sums(positions: Ints, values: Floats, n: int) -> Floats:
    """Sum of the values at each position, float64 [n]; of no values, too."""
    return np.bincount(positions, values, n).astype(np.float64)
