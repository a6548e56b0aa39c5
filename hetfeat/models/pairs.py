"""A pairwise loss inside tasks: programs of different tasks or devices are never compared."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetfeat.features.batch import Examples
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import NOISE, by_group

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Pairs:
    """Pairs whose first program is faster than its second by more than the noise.

    Attributes:
        faster: Positions of the faster programs, int32 [p]: pairs take more memory than all else of
            a program.
        slower: Positions of the slower programs, int32 [p].
        programs: Number of programs that the positions range over.
        at_once: Pairs whose derivatives are in memory at once; 4,194,304 by default.
        weight: Factor on what a pair says; None, the default, for one that gives a program the
            weight of one on average. A share of more programs has the factor of all.
    """

    faster: Ints
    slower: Ints
    programs: int
    at_once: int = 2**22
    weight: float | None = None

    @property
    def mean_weight(self) -> float:
        """Factor on what a pair says."""
        if self.weight is not None:
            return self.weight
        return self.programs / (2 * max(1, len(self)))

    def __len__(self) -> int:
        return len(self.faster)

    def gradient(self, margins: Floats) -> tuple[Floats, Floats]:
        """First and second derivatives of the loss by each margin, both float64 [programs].

        The loss of a pair is log(1 + exp(margin of the slower - margin of the faster)), scaled
        by `mean_weight`.
        """
        n, scale = self.programs, self.mean_weight
        gradient, hessian = np.zeros(n), np.zeros(n)
        for faster, slower in self._chunks():
            wrong = 1 / (1 + np.exp(margins[faster] - margins[slower]))
            slope, bend = scale * wrong, scale * wrong * (1 - wrong)
            gradient += _sums(slower, slope, n) - _sums(faster, slope, n)
            hessian += _sums(slower, bend, n) + _sums(faster, bend, n)
        return gradient, hessian

    def loss(self, margins: Floats) -> float:
        """Mean loss of a pair."""
        sums = (
            np.logaddexp(0, margins[slower] - margins[faster]).sum()
            for faster, slower in self._chunks()
        )
        return float(sum(sums)) / len(self)

    def _chunks(self) -> Iterator[tuple[Ints, Ints]]:
        for start in range(0, len(self), self.at_once):
            chunk = slice(start, start + self.at_once)
            yield self.faster[chunk], self.slower[chunk]


def pairs_of(
    examples: Examples, seed: int = 0, noise: float = NOISE, most_pairs: int = 64
) -> Pairs:
    """The pairs of each task on each device.

    Failed programs take no part, as in PCA: y = 0 says what they are, and trees that are to order
    them, too, tell those that run apart less well (docs/models.md).

    Args:
        examples: Measured programs, n of them.
        seed: Seed of the draw among the pairs of large tasks; 0 by default.
        noise: Least relative difference of latencies, as a share; `NOISE` by default.
        most_pairs: Most pairs drawn per program; 64 by default: all pairs of a task of 10,000
            programs would not fit.
    """
    rng = np.random.default_rng(seed)
    slowness = np.log(examples.latency_s)
    faster: list[Ints] = []
    slower: list[Ints] = []
    for group in by_group(group_codes(examples)[0]):
        rows = group.astype(np.int32)
        if len(rows) > 2 * most_pairs:
            first = np.repeat(rows, most_pairs)
            second = rng.choice(rows, len(first))
        else:
            i, j = np.triu_indices(len(rows), k=1)
            first, second = rows[i], rows[j]
        lead = slowness[second] - slowness[first]
        faster += [first[lead > np.log1p(noise)], second[-lead > np.log1p(noise)]]
        slower += [second[lead > np.log1p(noise)], first[-lead > np.log1p(noise)]]
    none = [np.empty(0, np.int32)]
    return Pairs(np.concatenate(none + faster), np.concatenate(none + slower), len(examples))


def _sums(positions: Ints, values: Floats, n: int) -> Floats:
    """Sum of the values at each position, float64 [n]; of no values, too."""
    return np.bincount(positions, values, n).astype(np.float64)
