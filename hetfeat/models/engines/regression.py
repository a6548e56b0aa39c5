"""What measured programs of a task say of others like them, without a gradient step."""

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, rankdata

Doubles = npt.NDArray[np.float64]

BELIEF = 4.0
"""Default of `belief`."""
_NEAR = (0.1, 0.3, 1.0, 2.0, 5.0)
"""What the squared distance of two programs over the median one may be worth."""
_NOISE = (0.03, 0.1, 0.3, 1.0, 3.0)
"""Variance of a value that its program does not tell, over that which it tells."""


def corrected(
    margins: Doubles,
    queries: Doubles,
    said: Doubles,
    vectors: Doubles,
    slowness: Doubles,
    *,
    belief: float = BELIEF,
) -> Doubles:
    """Margins of queries: the head's, as far as it was right, and what it missed of the like.

    Speeds are normal scores: the order of the measured programs, in which a few very slow ones
    weigh no more than others.

    Args:
        margins: Margins of the queries as the head gives them, float64 [q].
        queries: Embeddings of the queries, float64 [q, width].
        said: Margins of the measured programs as the head gives them, float64 [s].
        vectors: Embeddings of the measured programs, float64 [s, width].
        slowness: Logarithms of the measured latencies, infinite for a failure, float64 [s].
        belief: How much the head is believed before anything is measured, 4.0 by default: as if by
            so many programs, of logits that spread by one, whose speeds it had told exactly.
    """
    speed = norm.ppf((rankdata(-slowness) - 0.5) / len(slowness))
    told = said - said.mean()
    trust = (speed @ told + belief) / (told @ told + belief)
    answer: Doubles = trust * margins + carried_over(vectors, speed - trust * told, queries)
    return answer


def carried_over(vectors: Doubles, values: Doubles, queries: Doubles) -> Doubles:
    """Gaussian-process regression of the values of measured programs (mean 0) on embeddings.

    The kernel is squared exponential in embeddings of unit variance (Rasmussen and Williams 2006,
    equation 2.25). Its length, and how much of the values is noise, all of them perhaps, is what
    leaves out one measured program best (5.12).
    """
    scale = vectors.std(axis=0)
    varies = scale > 1e-6 * scale.max(initial=0)
    own, others = vectors[:, varies] / scale[varies], queries[:, varies] / scale[varies]
    apart = _squared_distances(own, own)
    typical = np.median(apart[apart > 0]) if (apart > 0).any() else 1.0
    least, expected = float(values @ values), np.zeros(len(queries))
    for near in _NEAR:
        variances, axes = np.linalg.eigh(np.exp(-near * apart / typical))
        along = axes.T @ values
        for noise in _NOISE:
            shrunk = 1 / (variances + noise)
            weights = axes @ (along * shrunk)
            left_out = float(((weights / (axes**2 @ shrunk)) ** 2).sum())
            if left_out < least:
                least = left_out
                alike = np.exp(-near * _squared_distances(others, own) / typical)
                expected = alike @ weights
    return expected


def _squared_distances(a: Doubles, b: Doubles) -> Doubles:
    squares: Doubles = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * a @ b.T
    return squares.clip(min=0)
