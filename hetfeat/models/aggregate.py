"""Per-store features of a program folded into one row, for models that read flat tables."""

import numpy as np

from hetfeat.features.batch import Batch, Floats
from hetfeat.features.columns import HARDWARE, STORE, TASK

FOLDS = {"sum": np.add, "max": np.maximum}
"""How the stores of a program become one value a column."""


def flat_names() -> list[str]:
    """Names of the columns of `flat_features`, in order."""
    return [
        *(f"{fold}.{column.name}" for fold in FOLDS for column in STORE),
        *(f"task.{column.name}" for column in TASK),
        *(f"hardware.{column.name}" for column in HARDWARE),
    ]


def flat_features(batch: Batch) -> Floats:
    """The programs of a batch as rows, float32 [n, len(flat_names())].

    A program without stores has zeros.
    """
    counts = np.diff(batch.offsets)
    some = counts > 0
    parts = []
    for fold in FOLDS.values():
        folded = np.zeros((len(batch), len(STORE)), np.float32)
        if some.any():
            folded[some] = fold.reduceat(batch.stores, batch.offsets[:-1][some], axis=0)
        parts.append(folded)
    return np.concatenate([*parts, batch.task, batch.hardware], axis=1)
