"""What the choices inside the boosted model are worth: folds of the stores, loss, feature groups.

    python benchmarks/model_losses.py --records DIR [--seeds 3] [--only folds,loss,columns]

Prints one Markdown table: mean over seeds for within_task and by_task, over held-out devices for
by_target. docs/models.md holds its last run. Every row trains with one thread and early stopping
by the same rule.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from hetfeat.dataset.splits import Split, split_examples
from hetfeat.dataset.store import RecordStore
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Batch, Examples
from hetfeat.models.aggregate import flat_features, table_names
from hetfeat.models.evaluate import evaluate
from hetfeat.models.gbdt import GbdtParameters, XgbModel

FIGURES = ("pca", "rmse", "r2", "top1", "top5")
Fold = Callable[[Batch], Any]


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
    """One row: the default model with one thing changed."""

    name: str
    fold: Fold = flat_features
    parameters: dict[str, Any] = field(default_factory=dict)


VARIANTS = {
    "folds": [
        Variant("as built: main, total"),
        Variant("main, total, maximum", with_maximum),
        Variant("sum of logarithms, maximum", summed_logarithms),
        Variant("main alone", without("total.")),
        Variant("total alone", without("main.")),
    ],
    "loss": [
        Variant("pairwise alone", parameters={"point_weight": 0.0}),
        Variant("point weight 0.5", parameters={"point_weight": 0.5}),
        Variant("pointwise alone", parameters={"point_weight": 1.0}),
    ],
    "columns": [
        Variant("without task columns", without("task.")),
        Variant("without hardware columns", without("hardware.")),
        Variant("without either", without("task.", "hardware.")),
        Variant("without trace columns", without("trace.")),
        Variant("without store columns", without("main.", "total.")),
    ],
    "trees": [
        Variant("depth 4", parameters={"max_depth": 4}),
        Variant("depth 8", parameters={"max_depth": 8}),
        Variant("a fifth of the columns a tree", parameters={"columns_per_tree": 0.2}),
        Variant("learning rate 0.05", parameters={"learning_rate": 0.05}),
    ],
}


def figures_of(variant: Variant, examples: Examples, split: Split) -> dict[str, float]:
    sides = [examples.take(side) for side in (split.train, split.valid, split.test)]
    with mock.patch("hetfeat.models.aggregate.flat_features", variant.fold):
        model = XgbModel(GbdtParameters(**variant.parameters))
        start = time.perf_counter()
        model.fit(sides[0], sides[1])
        seconds = time.perf_counter() - start
        metrics = evaluate(model, *sides).metrics
    return {name: metrics[name] for name in FIGURES} | {"train_s": seconds}


def splits_of(examples: Examples, seeds: int) -> dict[str, list[Split]]:
    devices = sorted(set(examples.device.tolist()))
    found = {
        kind: [split_examples(examples, kind, seed) for seed in range(seeds)]
        for kind in ("within_task", "by_task")
    }
    if len(devices) > 1:
        found["by_target"] = [split_examples(examples, "by_target", 0, (d,)) for d in devices]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default=",".join(VARIANTS))
    given = parser.parse_args()
    examples = assemble(RecordStore.open(given.records)).examples
    splits = splits_of(examples, given.seeds)
    print("| variant | split | " + " | ".join((*FIGURES, "train s")) + " |")
    print("|---" * (len(FIGURES) + 3) + "|")
    for group in given.only.split(","):
        for variant in VARIANTS[group]:
            for kind, some in splits.items():
                rows = [list(figures_of(variant, examples, split).values()) for split in some]
                cells = " | ".join(f"{value:.3f}" for value in np.mean(rows, axis=0))
                print(f"| {variant.name} | {kind} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
