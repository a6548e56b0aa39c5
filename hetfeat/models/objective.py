"""The training loss: order the programs of a task, and estimate y at the same time.

A model's margin m is the logit of its estimate of y. The pairwise part sees differences of
margins inside a task only; the pointwise part (cross-entropy between y and sigmoid(m)) gives
margins a scale that holds across tasks, which a ranking loss alone lacks.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetfeat.models.pairs import Pairs

Floats = npt.NDArray[np.float64]

POINT_SCALE = 4.0
"""The curvature of the pointwise part is at most 1/4 a program; this brings it to the pairs'."""
_LEAST_HESSIAN = 1e-6


@dataclass(frozen=True)
class Objective:
    """(1 - point_weight) x pairwise + point_weight x pointwise.

    Attributes:
        pairs: Pairs over n programs.
        y: Labels, float64 [n].
        point_weight: Share of the pointwise part, within 0..1.
    """

    pairs: Pairs
    y: Floats
    point_weight: float

    def gradient(self, margins: Floats) -> tuple[Floats, Floats]:
        """First and second derivatives by each margin, both float64 [n]."""
        slope, bend = self.pairs.gradient(margins)
        estimate = sigmoid(margins)
        share = self.point_weight
        return (
            (1 - share) * slope + share * POINT_SCALE * (estimate - self.y),
            np.maximum(
                (1 - share) * bend + share * POINT_SCALE * estimate * (1 - estimate),
                _LEAST_HESSIAN,
            ),
        )

    def loss(self, margins: Floats) -> float:
        """The loss per pair and per program, weighted alike."""
        point = np.logaddexp(0, margins) - self.y * margins
        share = self.point_weight
        return (1 - share) * self.pairs.loss(margins) + share * float(point.mean())


def sigmoid(margins: Floats) -> Floats:
    """1 / (1 + exp(-m)), without overflow."""
    return np.exp(-np.logaddexp(0, -margins))
