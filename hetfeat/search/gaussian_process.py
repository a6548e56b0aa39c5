"""The Gaussian process of our own search: what it sees of states, and how these go together."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetfeat.search.base import Space, State

Floats = npt.NDArray[np.float64]


class StateFeatures:
    """What the process sees of a space's states.

    That is the space's own vectors and, where values are not in that order anyway, how often two
    divides them: 48 lies between 32 and 64, but warps, vectors and cache lines are powers of two.

    Args:
        space: Space of the states.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self.positions = len(space.levels)
        halvings = [_halvings(np.array(level)) for level in space.levels]
        self._mixed = [
            at
            for at, (level, counts) in enumerate(zip(space.levels, halvings, strict=True))
            if len(level) > 2 and level[0] > 0 and (np.diff(counts) <= 0).any()
        ]
        self._spans = np.array([max(np.ptp(halvings[at]), 1) for at in self._mixed])

    def __call__(self, states: Sequence[State]) -> Floats:
        """Float64 [states, positions and more]; the space's own vectors come first."""
        vectors = self._space.vectors(states).astype(np.float64)
        if not self._mixed:
            return vectors
        values = np.array(states, np.int64)[:, self._mixed]
        return np.hstack([vectors, _halvings(values) / self._spans])


@dataclass(frozen=True)
class Covariance:
    """How the log times of two states go together.

    Three parts: one that falls with the distance of the two; a linear one, what each position adds
    wherever one is; and its square, what each two positions add together.

    Attributes:
        positions: Columns of the space's own vectors, within 0..1; of others only distances count.
        pairs: Weight of what two positions add together.
    """

    positions: int
    pairs: float

    def __call__(self, a: Floats, b: Floats) -> Floats:
        """Covariance of each of `a` with each of `b`, float64 [a, b]."""
        from scipy.spatial.distance import cdist

        centred_a, centred_b = a[:, : self.positions] - 0.5, b[:, : self.positions] - 0.5
        linear = centred_a @ centred_b.T * (4 / self.positions)
        covariance: Floats = cdist(a, b, "cityblock")
        np.exp(np.negative(covariance, out=covariance), out=covariance)  # in place: it is large
        covariance += linear
        if self.pairs:
            covariance += self.pairs * linear**2
        return covariance

    def diagonal(self, a: Floats) -> Floats:
        """Covariance of each with itself, float64 [a]."""
        linear: Floats = 4 * ((a[:, : self.positions] - 0.5) ** 2).sum(axis=1) / self.positions
        return 1 + linear + self.pairs * linear**2


@dataclass(frozen=True)
class Process:
    """A process that has seen values.

    Attributes:
        covariance: Covariance of the values without noise.
        x: States whose values were seen, float64 [values, columns].
        factor: Lower Cholesky factor of their covariance, noise included.
        weights: Weight in the mean of a state of its covariance with each value, float64 [values].
        evidence: Log likelihood of the values up to a constant, with the best scale for them.
        noise: Variance of a value beside what the covariance says, for values of variance 1.
    """

    covariance: Covariance
    x: Floats
    factor: Floats
    weights: Floats
    evidence: float
    noise: float

    @classmethod
    def of(cls, covariance: Covariance, x: Floats, y: Floats, *, noise: float = 1e-2) -> "Process":
        """What is known after the values `y` at `x`."""
        from scipy.linalg import cho_solve, cholesky

        factor = cholesky(covariance(x, x) + noise * np.eye(len(x)), lower=True)
        weights = cho_solve((factor, True), y)
        fit = max(float(y @ weights) / len(y), 1e-12)
        evidence = -0.5 * len(y) * np.log(fit) - float(np.log(np.diag(factor)).sum())
        return cls(covariance, x, factor, weights, evidence, noise)

    def lowest(
        self,
        there: Floats,
        expected: Floats,
        curiosity: float,
        count: int,
        *,
        shortlist: int = 600,
    ) -> list[int]:
        """Rows of the lowest confidence bounds, each once those before it are known.

        Args:
            there: Candidates, float64 [candidates, columns].
            expected: Expected value of each without the process, float64 [candidates].
            curiosity: Standard deviations by which the bound is below the mean.
            count: Number of rows; no more than there are candidates.
            shortlist: Candidates of lowest mean whose variance is computed, which costs much more
                than a mean; 600 by default.
        """
        from scipy.linalg import solve_triangular

        across = self.covariance(there, self.x)
        mean = expected + across @ self.weights
        rows = np.arange(len(there))
        if len(there) > shortlist:
            rows = np.argpartition(mean, shortlist)[:shortlist]
            there, mean, across = there[rows], mean[rows], across[rows]
        explained = np.zeros((len(self.x) + count, len(there)))
        explained[: len(self.x)] = solve_triangular(self.factor, across.T, lower=True)
        variance = self.covariance.diagonal(there) - np.einsum("ij,ij->j", explained, explained)
        chosen: list[int] = []
        for row in range(len(self.x), len(explained)):
            bound = mean - curiosity * np.sqrt(np.maximum(variance, 0.0))
            bound[chosen] = np.inf
            at = int(np.argmin(bound))
            chosen.append(at)
            left = self.covariance(there, there[[at]])[:, 0] - explained.T @ explained[:, at]
            explained[row] = left / np.sqrt(max(variance[at], 0.0) + self.noise)
            variance -= explained[row] ** 2
        return [int(rows[at]) for at in chosen]


def _halvings(values: npt.NDArray[np.int64]) -> Floats:
    """How often two divides each; 0 for what is not positive."""
    largest_power = np.maximum(values & -values, 1)
    halvings: Floats = np.where(values > 0, np.log2(largest_power), 0.0)
    return halvings
