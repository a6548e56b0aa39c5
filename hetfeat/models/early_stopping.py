"""Judges each epoch (or boosting round) on the valid side: when to stop, and which was best."""

import numpy as np
import numpy.typing as npt

from hetfeat.models.base import OnEpoch
from hetfeat.models.metrics import pairwise_accuracy, rmse
from hetfeat.models.objective import sigmoid
from hetfeat.models.training_set import Side


class EarlyStopping:
    """Remembers the epoch of the least loss on the valid side, and tells the caller of each."""

    def __init__(
        self, valid: Side, point_weight: float, patience: int, on_epoch: OnEpoch | None
    ) -> None:
        self.valid, self.patience, self.on_epoch = valid, patience, on_epoch
        self.objective = valid.objective(point_weight)
        self.best_epoch, self.loss, self.least_loss = 0, float("inf"), float("inf")

    def is_over(self, epoch: int, margins: npt.NDArray[np.float64]) -> bool:
        """Whether to stop: the loss has not fallen for `patience` epochs.

        Args:
            epoch: Number of the epoch, counted from 0.
            margins: Margins of the valid side, float64 [n].
        """
        self.loss = loss = self.objective.loss(margins)
        if loss < self.least_loss:
            self.best_epoch, self.least_loss = epoch, loss
        if self.on_epoch:
            latency_s, groups = self.valid.examples.latency_s, self.valid.groups
            pca = pairwise_accuracy(margins, latency_s, groups).value
            error = rmse(sigmoid(margins), self.valid.y)
            self.on_epoch(epoch, {"valid_loss": loss, "valid_pca": pca, "valid_rmse": error})
        return epoch - self.best_epoch >= self.patience
