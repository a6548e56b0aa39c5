"""What the boosted model hands to XGBoost: matrix, objective, and a watch on the valid side."""

from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from hetfeat.features.batch import Batch, Examples
from hetfeat.models.aggregate import flat_features
from hetfeat.models.base import OnEpoch
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import pairwise_accuracy, rmse
from hetfeat.models.objective import Objective, sigmoid

Floats = npt.NDArray[np.float64]


def matrix_of(batch: Batch) -> xgboost.DMatrix:
    """The programs of a batch as XGBoost's own table."""
    return xgboost.DMatrix(flat_features(batch))


def gradient_of(objective: Objective) -> Any:
    """The objective in the form that `xgboost.train` calls."""

    def gradient(margins: Any, matrix: xgboost.DMatrix) -> tuple[Floats, Floats]:
        return objective.gradient(margins.astype(np.float64))

    return gradient


class ValidationWatch(xgboost.callback.TrainingCallback):
    """Judges each round on the valid side, tells the caller, and remembers the best round.

    The base class of XGBoost is its only way to be told of rounds.
    """

    def __init__(
        self, objective: Objective, valid: Examples, patience: int, on_epoch: OnEpoch | None
    ) -> None:
        self.objective, self.patience, self.on_epoch = objective, patience, on_epoch
        self.matrix = matrix_of(valid.batch)
        self.latency_s, self.groups = valid.latency_s, group_codes(valid)[0]
        self.best_round, self.least_loss = 0, float("inf")

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Whether to stop: the loss has not fallen for `patience` rounds."""
        margins = model.predict(self.matrix, output_margin=True).astype(np.float64)
        loss = self.objective.loss(margins)
        if loss < self.least_loss:
            self.best_round, self.least_loss = epoch, loss
        if self.on_epoch:
            pca = pairwise_accuracy(margins, self.latency_s, self.groups).value
            error = rmse(sigmoid(margins), self.objective.y)
            self.on_epoch(epoch, {"valid_loss": loss, "valid_pca": pca, "valid_rmse": error})
        return epoch - self.best_round >= self.patience
