"""What the choices inside a model are worth: its loss, and of trees the folds, columns and shape.

    python benchmarks/model_losses.py --records DIR --out FILE [--models xgb,mlp,attention]
        [--seeds 0,1,2] [--only folds,loss,columns,trees] [--splits within_task,...]
    python benchmarks/model_losses.py --out FILE --table

A cell is a model with one thing changed, a split and a seed, in a process of its own and one JSON
line of FILE, as in `models.py`; an interrupted run goes on. A model is measured with what it has:
networks have no folds, trees no LambdaRank. docs/experiments holds the last runs.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import models
import numpy as np

from hetfeat.dataset.store import RecordStore
from hetfeat.features.batch import Batch
from hetfeat.models.aggregate import flat_features, table_names
from hetfeat.models.registry import model_class

Fold = Callable[[Batch], Any]
AS_BUILT = "none"


def without(*prefixes: str) -> Fold:
    """The model's own columns, those of some prefixes emptied: no tree splits on a constant."""
    masked = [i for i, name in enumerate(table_names("flat")) if name.startswith(prefixes)]

    def fold(batch: Batch) -> Any:
        flat = flat_features(batch)
        flat[:, masked] = 0
        return flat

    return fold


def summed_logarithms(batch: Batch) -> Any:
    """Plain sum and maximum of the stored values, the usual way to fold stores."""
    starts = batch.offsets[:-1]
    folded = [ufunc.reduceat(batch.stores, starts) for ufunc in (np.add, np.maximum)]
    return np.concatenate([*folded, batch.trace, batch.task, batch.hardware], axis=1)


def with_maximum(batch: Batch) -> Any:
    maximum = np.maximum.reduceat(batch.stores, batch.offsets[:-1])
    return np.concatenate([flat_features(batch), maximum], axis=1)


@dataclass(frozen=True)
class Variant:
    """The default model with one thing changed: how stores are folded, or hyperparameters."""

    fold: str = AS_BUILT
    parameters: dict[str, Any] = field(default_factory=dict)


FOLDS: dict[str, Fold] = {
    AS_BUILT: flat_features,
    "and maximum": with_maximum,
    "sum of logarithms and maximum": summed_logarithms,
    "main alone": without("total."),
    "total alone": without("main."),
    "no task columns": without("task."),
    "no hardware columns": without("hardware."),
    "neither": without("task.", "hardware."),
    "no trace columns": without("trace."),
    "no store columns": without("main.", "total."),
}
GROUPS = {
    "folds": [Variant(fold) for fold in list(FOLDS)[1:5]],
    "columns": [Variant(fold) for fold in list(FOLDS)[5:]],
    "loss": [
        *(Variant(parameters={"point_weight": share}) for share in (0.0, 0.5, 1.0)),
        Variant(parameters={"lambda_rank": True}),
    ],
    "trees": [
        *(Variant(parameters={"max_depth": depth}) for depth in (4, 8)),
        Variant(parameters={"columns_per_tree": 0.2}),
        Variant(parameters={"learning_rate": 0.05}),
    ],
}


def variants(model: str, groups: Sequence[str]) -> Iterator[Variant]:
    """The model as built, then those of some groups that it can have and that are not the same."""
    own = model_class(model).for_effort("standard", 0).parameters
    yield Variant()
    for group in groups:
        if group == "loss" or "stores" in own:
            for variant in GROUPS[group]:
                changed = any(own.get(k, v) != v for k, v in variant.parameters.items())
                if changed or variant.fold != AS_BUILT:
                    yield variant


def figures_of(cell: models.Cell, store: RecordStore) -> dict[str, float]:
    """Those of `models.py`, of a model that reads another table."""
    with mock.patch("hetfeat.models.aggregate.flat_features", FOLDS[cell.without]):
        return models.figures_of(replace(cell, without=AS_BUILT), store)


def main() -> None:
    parser = models.arguments(__doc__, ["xgb"], ("within_task", "by_task", "by_target"))
    parser.add_argument("--only", default=",".join(GROUPS))
    given = parser.parse_args()
    if not (given.cell or given.table):
        for model in given.models.split(","):
            for variant in variants(model, given.only.split(",")):
                settings = json.dumps(json.loads(given.settings) | variant.parameters)
                own = {"models": model, "without": variant.fold, "settings": settings}
                models.run_missing(argparse.Namespace(**(vars(given) | own)), __file__)
        given.table = True
    models.run(given, __file__, figures_of, models.table)


if __name__ == "__main__":
    main()
