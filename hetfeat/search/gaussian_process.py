"""The Gaussian process of our own search: what it sees of states, and how these go together."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetfeat.search.base import Space, State

NOISE = 1e-2
PAIRS = (0.0, 0.5)
"""Weights that the process chooses from for what two positions add together."""
SHORT = 600
"""Candidates of lowest mean whose variance is found, which costs much more than a mean."""

Floats = npt.NDArray[np.float64]


class StateFeatures:
    """What the process sees of a space's states.

    That is the space's own vectors and, where values are not in that order anyway, how often two
    divides them: 48 lies between 32 and 64, but warps, vectors and cache lines are powers of two.

    Args:
        space: The space.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self.positions = len(space.levels)
        halvings = [_halvings(np.array(level)) for level in space.levels]
        self._mixed = [
            at
            for at, (level, found) in enumerate(zip(space.levels, halvings, strict=True))
            if len(level) > 2 and level[0] > 0 and (np.diff(found) <= 0).any()
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
        pairs: Weight of the square.
    """

    positions: int
    pairs: float

    def __call__(self, a: Floats, b: Floats) -> Floats:
        """Of each of `a` with each of `b`, float64 [a, b]."""
        from scipy.spatial.distance import cdist

        own_a, own_b = a[:, : self.positions] - 0.5, b[:, : self.positions] - 0.5
        linear = own_a @ own_b.T * (4 / self.positions)
        covariance: Floats = cdist(a, b, "cityblock")
        np.exp(np.negative(covariance, out=covariance), out=covariance)  # in place: it is large
        covariance += linear
        if self.pairs:
            covariance += self.pairs * linear**2
        return covariance

    def diagonal(self, a: Floats) -> Floats:
        """Of each with itself, float64 [a]."""
        linear: Floats = 4 * ((a[:, : self.positions] - 0.5) ** 2).sum(axis=1) / self.positions
        return 1 + linear + self.pairs * linear**2


@dataclass(frozen=True)
class Process:
    """A process that has seen values.

    Attributes:
        covariance: The covariance.
        x: Where the values were seen, float64 [values, columns].
        factor: Lower Cholesky factor of their covariance, noise included.
        weights: Of each value's covariance with a state in the mean there.
        evidence: Log likelihood of the values up to a constant, with the best scale for them.
    """

    covariance: Covariance
    x: Floats
    factor: Floats
    weights: Floats
    evidence: float

    @classmethod
    def of(cls, covariance: Covariance, x: Floats, y: Floats) -> "Process":
        """What is known after the values `y` at `x`."""
        from scipy.linalg import cho_solve, cholesky

        factor = cholesky(covariance(x, x) + NOISE * np.eye(len(x)), lower=True)
        weights = cho_solve((factor, True), y)
        fit = max(float(y @ weights) / len(y), 1e-12)
        evidence = -0.5 * len(y) * np.log(fit) - float(np.log(np.diag(factor)).sum())
        return cls(covariance, x, factor, weights, evidence)

    def lowest(self, there: Floats, expected: Floats, curiosity: float, count: int) -> list[int]:
        """Rows of the lowest confidence bounds, each once those before it are known.

        Args:
            there: The candidates, float64 [candidates, columns].
            expected: What is expected of each without the process.
            curiosity: Standard deviations by which the bound is below the mean.
            count: How many rows; no more than there are candidates.
        """
        from scipy.linalg import solve_triangular

        across = self.covariance(there, self.x)
        mean = expected + across @ self.weights
        rows = np.arange(len(there))
        if len(there) > SHORT:
            rows = np.argpartition(mean, SHORT)[:SHORT]
            there, mean, across = there[rows], mean[rows], across[rows]
        known = np.zeros((len(self.x) + count, len(there)))
        known[: len(self.x)] = solve_triangular(self.factor, across.T, lower=True)
        variance = self.covariance.diagonal(there) - np.einsum("ij,ij->j", known, known)
        chosen: list[int] = []
        for row in range(len(self.x), len(known)):
            bound = mean - curiosity * np.sqrt(np.maximum(variance, 0.0))
            bound[chosen] = np.inf
            at = int(np.argmin(bound))
            chosen.append(at)
            left = self.covariance(there, there[[at]])[:, 0] - known.T @ known[:, at]
            known[row] = left / np.sqrt(max(variance[at], 0.0) + NOISE)
            variance -= known[row] ** 2
        return [int(rows[at]) for at in chosen]


def _halvings(values: npt.NDArray[np.int64]) -> Floats:
    """How often two divides each; 0 for what is not positive."""
    largest_power = np.maximum(values & -values, 1)
    halvings: Floats = np.where(values > 0, np.log2(largest_power), 0.0)
    return halvings
