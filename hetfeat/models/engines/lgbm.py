"""LightGBM as an engine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt

from hetfeat.features.batch import Batch, Examples
from hetfeat.models.aggregate import Table, table_names, table_of
from hetfeat.models.base import OnEpoch
from hetfeat.models.engines.trees import TableObjective
from hetfeat.models.gbdt import LgbmParameters
from hetfeat.models.side import Side
from hetfeat.models.watch import Watch

Floats = npt.NDArray[np.float64]

BOOSTER = "booster.txt"
DAMAGED: tuple[type[Exception], ...] = (lightgbm.basic.LightGBMError,)


@dataclass(frozen=True)
class LgbmTrees:
    """Trees, and the table they read."""

    booster: Any
    stores: str

    def margins(self, batch: Batch, support: Examples | None) -> Floats:
        """The margin of each program; a support set is not used."""
        table = table_of(batch, self.stores)
        if not len(table.rows):
            return np.zeros(len(batch))
        return table.sums(self.booster.predict(table.rows, raw_score=True))

    def write(self, folder: Path) -> None:
        """Writes LightGBM's text."""
        self.booster.save_model(folder / BOOSTER)

    def importance(self) -> dict[str, float]:
        """Total gain of each column that a tree splits on."""
        gains = self.booster.feature_importance("gain").tolist()
        named = zip(table_names(self.stores), gains, strict=True)
        return {name: gain for name, gain in named if gain > 0}


def train(
    settings: LgbmParameters, train: Side, valid: Side, on_epoch: OnEpoch | None
) -> LgbmTrees:
    """Boosts until the valid side improves no more."""
    watch = Watch(valid, settings.point_weight, settings.patience, on_epoch)
    table = table_of(valid.examples.batch, settings.stores)
    booster = _boost(settings, train, settings.rounds, None, (watch, table))
    return LgbmTrees(_cut(booster, watch.best_epoch + 1), settings.stores)


def fine_tune(settings: LgbmParameters, fitted: LgbmTrees, records: Side) -> LgbmTrees:
    """A few more rounds on other records."""
    booster = _boost(settings, records, settings.fine_tune_rounds, fitted.booster, None)
    return LgbmTrees(_cut(booster, -1), fitted.stores)


def read(folder: Path, files: set[str], settings: LgbmParameters) -> LgbmTrees:
    """The trees of a folder."""
    if BOOSTER not in files:
        raise KeyError(BOOSTER)
    return LgbmTrees(lightgbm.Booster(model_file=folder / BOOSTER), settings.stores)


def _boost(
    settings: LgbmParameters,
    side: Side,
    rounds: int,
    start: Any,
    watched: tuple[Watch, Table] | None,
) -> Any:
    table = table_of(side.examples.batch, settings.stores)
    objective = TableObjective(side.objective(settings.point_weight), table)
    data = lightgbm.Dataset(table.rows, free_raw_data=False)
    return lightgbm.train(
        {
            **settings.for_engine(len(table.rows)),
            "objective": lambda margins, _: objective.gradient(margins),
        },
        data,
        rounds,
        init_model=start,
        valid_sets=[lightgbm.Dataset(watched[1].rows, reference=data)] if watched else [],
        feval=_loss_of(*watched) if watched else None,
        callbacks=[lightgbm.early_stopping(settings.patience, verbose=False)] if watched else [],
    )


def _loss_of(watch: Watch, table: Table) -> Any:
    """Tells the watch of each round; LightGBM itself stops by what is returned."""
    epoch = -1

    def loss(margins: npt.NDArray[np.float64], data: Any) -> tuple[str, float, bool]:
        nonlocal epoch
        epoch += 1
        watch.is_over(epoch, table.sums(margins))
        return "loss", watch.loss, False

    return loss


def _cut(booster: Any, rounds: int) -> Any:
    """The first rounds as a booster of its own, without the training data."""
    return lightgbm.Booster(model_str=booster.model_to_string(num_iteration=rounds))
