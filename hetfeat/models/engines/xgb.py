"""XGBoost as an engine."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from hetfeat.features.batch import Batch, Examples
from hetfeat.models.aggregate import Table, table_names, table_of
from hetfeat.models.base import OnEpoch
from hetfeat.models.engines.trees import TableObjective
from hetfeat.models.gbdt import GbdtParameters
from hetfeat.models.side import Side
from hetfeat.models.watch import Watch

Floats = npt.NDArray[np.float64]

BOOSTER = "booster.ubj"
DAMAGED: tuple[type[Exception], ...] = (xgboost.core.XGBoostError,)


@dataclass(frozen=True)
class XgbTrees:
    """Trees, and the table they read."""

    booster: Any
    stores: str

    def margins(self, batch: Batch, support: Examples | None) -> Floats:
        """The margin of each program; a support set is not used."""
        table = table_of(batch, self.stores)
        if not len(table.rows):
            return np.zeros(len(batch))
        return table.sums(self.booster.inplace_predict(table.rows, predict_type="margin"))

    def write(self, folder: Path) -> None:
        """Writes XGBoost's binary JSON."""
        self.booster.save_model(folder / BOOSTER)

    def importance(self) -> dict[str, float]:
        """Total gain of each column that a tree splits on."""
        names = table_names(self.stores)
        gains = self.booster.get_score(importance_type="total_gain")
        return {names[int(key[1:])]: gain for key, gain in gains.items()}


def train(settings: GbdtParameters, train: Side, valid: Side, on_epoch: OnEpoch | None) -> XgbTrees:
    """Boosts until the valid side improves no more."""
    watch = Watch(valid, settings.point_weight, settings.patience, on_epoch)
    callback = _Callback(watch, table_of(valid.examples.batch, settings.stores))
    booster = _boost(settings, train, settings.rounds, [callback], None)
    return XgbTrees(booster[: watch.best_epoch + 1], settings.stores)


def fine_tune(settings: GbdtParameters, fitted: XgbTrees, records: Side) -> XgbTrees:
    """A few more rounds on other records."""
    booster = _boost(settings, records, settings.fine_tune_rounds, [], fitted.booster)
    return XgbTrees(booster, fitted.stores)


def read(folder: Path, files: set[str], settings: GbdtParameters) -> XgbTrees:
    """The trees of a folder."""
    if BOOSTER not in files:
        raise KeyError(BOOSTER)
    return XgbTrees(xgboost.Booster(model_file=folder / BOOSTER), settings.stores)


def _boost(
    settings: GbdtParameters, side: Side, rounds: int, callbacks: list[Any], start: Any
) -> Any:
    table = table_of(side.examples.batch, settings.stores)
    return xgboost.train(
        settings.for_engine(len(table.rows)),
        xgboost.DMatrix(table.rows),
        rounds,
        obj=_objective(TableObjective(side.objective(settings.point_weight), table)),
        xgb_model=start,
        callbacks=callbacks,
        verbose_eval=False,
    )


def _objective(objective: TableObjective) -> Callable[..., tuple[Floats, Floats]]:
    return lambda margins, matrix: objective.gradient(margins)


class _Callback(xgboost.callback.TrainingCallback):
    """The base class of XGBoost is its only way to be told of rounds."""

    def __init__(self, watch: Watch, table: Table) -> None:
        self.watch, self.table = watch, table
        self.matrix = xgboost.DMatrix(table.rows)

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Whether to stop."""
        margins = self.table.sums(model.predict(self.matrix, output_margin=True))
        return self.watch.is_over(epoch, margins)
