"""Gradient-boosted trees (XGBoost) on folded per-store, task and hardware features."""

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hetfeat.errors import DataError
from hetfeat.features import columns
from hetfeat.features.batch import Batch, Examples
from hetfeat.features.batch import Floats as Floats32
from hetfeat.models.aggregate import flat_features, flat_names
from hetfeat.models.base import OnEpoch
from hetfeat.models.calibration import Calibration, fit_calibration
from hetfeat.models.labels import best_latencies, merged, records_seen
from hetfeat.models.objective import Objective, objective_of
from hetfeat.models.persist import read_head, write_folder

Floats = npt.NDArray[np.float64]

BOOSTER = "booster.ubj"
COLUMNS = {"store": columns.STORE, "task": columns.TASK, "hardware": columns.HARDWARE}
ROUNDS = {"quick": 150, "standard": 600, "full": 2000}
"""Boosting rounds at most, by effort."""
_ROWS_A_THREAD = 20_000
"""Threads meet at a barrier several times a level; on a busy machine few rows are slower on two
cores than on one (6,700 rows, other jobs running: 125 s with two threads, 7 s with one)."""


@dataclass(frozen=True)
class GbdtParameters:
    """Hyperparameters; `point_weight` is the share of the loss that estimates y itself."""

    rounds: int = ROUNDS["standard"]
    patience: int = 40
    learning_rate: float = 0.1
    max_depth: int = 6
    subsample: float = 0.8
    columns_per_tree: float = 0.5
    min_child_weight: float = 3.0
    point_weight: float = 0.2
    fine_tune_rounds: int = 30
    seed: int = 0

    def for_xgboost(self, rows: int) -> dict[str, Any]:
        """The same in XGBoost's names, for a table of so many rows."""
        cores = len(os.sched_getaffinity(0))
        return {
            "eta": self.learning_rate,
            "max_depth": self.max_depth,
            "subsample": self.subsample,
            "colsample_bytree": self.columns_per_tree,
            "min_child_weight": self.min_child_weight,
            "seed": self.seed,
            "tree_method": "hist",
            "base_score": 0.0,
            "disable_default_eval_metric": True,
            "nthread": min(cores, 1 + rows // _ROWS_A_THREAD),
            "verbosity": 0,
        }


class XgbModel:
    """A cost model of boosted trees. Its margin is the logit of y; its score exp(margin)."""

    name = "xgb"

    def __init__(self, settings: GbdtParameters | None = None) -> None:
        self.settings = settings or GbdtParameters()
        self._booster: Any = None
        self._calibration: Calibration | None = None
        self.seen: dict[str, dict[str, int]] = {}

    @classmethod
    def for_effort(cls, effort: str, seed: int) -> Self:
        """An untrained model with the budget of an effort."""
        return cls(GbdtParameters(rounds=ROUNDS[effort], seed=seed))

    @property
    def parameters(self) -> dict[str, Any]:
        """Hyperparameters by name, as logged."""
        return dataclasses.asdict(self.settings)

    def fit(self, train: Examples, valid: Examples, on_epoch: OnEpoch | None = None) -> None:
        """Learns from `train` (one task is enough) until `valid` improves no more.

        A failed program has y = 0 and is slower than any other of its task.

        Raises:
            DataError: A side is empty or has no two programs of a task that differ.
        """
        import xgboost

        from hetfeat.models.boosting import ValidationWatch, gradient_of, matrix_of

        settings = self.settings
        objective = _objective(train, (train,), "train", settings)
        check = _objective(valid, (train, valid), "valid", settings)
        watch = ValidationWatch(check, valid, settings.patience, on_epoch)
        booster = xgboost.train(
            settings.for_xgboost(len(train)),
            matrix_of(train.batch),
            settings.rounds,
            obj=gradient_of(objective),
            callbacks=[watch],
            verbose_eval=False,
        )
        self._booster = booster[: watch.best_round + 1]
        self._calibration = fit_calibration(self.predict(valid.batch), check.y)
        self.seen = records_seen(train, valid)

    def predict(self, batch: Batch, support: Examples | None = None) -> Floats:
        """Scores, float64 [n]; `support` is not used."""
        return self.predict_flat(flat_features(batch))

    def predict_flat(self, table: Floats32) -> Floats:
        """Scores, float64 [n], of rows of `flat_features`."""
        if not len(table):
            return np.empty(0)
        margins = self._trained().inplace_predict(table, predict_type="margin")
        scores: Floats = np.exp(np.clip(margins.astype(np.float64), -30, 30))
        return scores

    def fine_tune(self, records: Examples) -> Self:
        """A copy with a few more rounds on `records`; the calibration is kept.

        Where no two records of a task differ there is nothing to learn: the copy is equal.
        """
        import xgboost

        from hetfeat.models.boosting import gradient_of, matrix_of

        adapted = type(self)(self.settings)
        adapted._booster, adapted._calibration = self._trained(), self._calibration
        adapted.seen = merged(self.seen, records_seen(records))
        objective = objective_of(
            records, best_latencies(records), self.settings.point_weight, self.settings.seed
        )
        if objective is not None:
            adapted._booster = xgboost.train(
                self.settings.for_xgboost(len(records)),
                matrix_of(records.batch),
                self.settings.fine_tune_rounds,
                obj=gradient_of(objective),
                xgb_model=self._trained(),
                verbose_eval=False,
            )
        return adapted

    def calibrate(self, scores: Floats) -> Floats:
        """Estimates of y, float64 [n] in [0, 1]."""
        self._trained()
        assert self._calibration is not None
        return self._calibration(scores)

    def importance(self) -> dict[str, float]:
        """Total gain of each column that a tree splits on."""
        gains = self._trained().get_score(importance_type="total_gain")
        names = flat_names()
        return {names[int(key[1:])]: gain for key, gain in gains.items()}

    def save(self, folder: Path) -> None:
        """Writes the model into an absent or empty folder, in one step."""
        booster = self._trained()
        assert self._calibration is not None
        head = {
            "model": self.name,
            "columns": {kind: columns.labels(own) for kind, own in COLUMNS.items()},
            "parameters": self.parameters,
            "calibration": dataclasses.asdict(self._calibration),
            "seen": self.seen,
        }
        write_folder(folder, head, lambda draft: booster.save_model(draft / BOOSTER))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The model of a folder written by `save`.

        Raises:
            DataError: The folder is not such a model, is damaged, or is of other features.
        """
        import xgboost

        head = read_head(folder)
        try:
            recorded = head["columns"]
            for kind, current in COLUMNS.items():
                columns.refuse_other_columns(recorded[kind], current, f"model '{folder}'")
            model = cls(GbdtParameters(**head["parameters"]))
            curve = head["calibration"]
            model._calibration = Calibration(tuple(curve["score"]), tuple(curve["y"]))
            if BOOSTER not in head["files"]:  # its digest would be unchecked
                raise KeyError(BOOSTER)
            model.seen = head["seen"]
            model._booster = xgboost.Booster(model_file=folder / BOOSTER)
        except (KeyError, TypeError, xgboost.core.XGBoostError) as error:
            raise DataError(
                f"model '{folder}' whose contents do not fit together ({error})",
                "a folder written by hetfeat",
                "pull or train the model again",
            ) from error
        return model

    def _trained(self) -> Any:
        if self._booster is None:
            raise DataError("an untrained model", "one that was fitted or loaded", "call fit")
        return self._booster


def _objective(
    examples: Examples, known: tuple[Examples, ...], side: str, settings: GbdtParameters
) -> Objective:
    """The objective of a side, its best latencies taken from the examples of `known`."""
    objective = None
    if len(examples):
        best = best_latencies(*known)
        objective = objective_of(examples, best, settings.point_weight, settings.seed)
    if objective is None:
        raise DataError(
            f"a {side} side of {len(examples)} records with no two programs of a task that "
            "differ in latency",
            "several programs a task, of different latencies",
            "measure more programs a task",
        )
    return objective
