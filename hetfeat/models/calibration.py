"""Scores turned into estimates of y by a rising curve."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """A rising piecewise linear curve, flat beyond its ends.

    Attributes:
        score: Score at each knot, rising.
        y: Estimate of y at each knot, not falling.
    """

    score: tuple[float, ...]
    y: tuple[float, ...]

    def __call__(self, scores: Floats) -> Floats:
        """Estimates of y, float64 [n]."""
        return np.interp(scores, self.score, self.y)


def fit_calibration(scores: Floats, y: Floats) -> Calibration:
    """Least squares among the curves that never fall (isotonic regression).

    Args:
        scores: Scores of programs, float64 [n], n > 0.
        y: Labels of the programs, float64 [n].
    """
    from sklearn.isotonic import IsotonicRegression  # a second to import: only to train

    curve = IsotonicRegression().fit(scores, y)
    knots = zip(curve.X_thresholds_.tolist(), curve.y_thresholds_.tolist(), strict=True)
    score, estimate = zip(*knots, strict=True)
    return Calibration(score, estimate)
