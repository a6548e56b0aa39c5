"""Hyperparameters of gradient-boosted trees, in our names and in those of their libraries."""

from dataclasses import dataclass
from typing import Any

from hetfeat.devices.host import usable_cores


@dataclass(frozen=True)
class GbdtParameters:
    """Hyperparameters of `xgb`.

    `stores` is the table that trees read (`aggregate.TABLES`); `point_weight` the share of the
    loss that estimates y itself; `fine_tune_columns` how many columns, those of the greatest gain,
    fine-tuning may split on (0: all); `members` how many trainings, each of other draws, the trees
    are the mean of.
    """

    rounds: int = 600
    patience: int = 40
    learning_rate: float = 0.1
    max_depth: int = 6
    subsample: float = 0.8
    columns_per_tree: float = 0.5
    min_child_weight: float = 3.0
    point_weight: float = 0.2
    stores: str = "flat"
    fine_tune_rounds: int = 30
    fine_tune_columns: int = 0
    members: int = 1
    seed: int = 0

    def for_engine(self, rows: int) -> dict[str, Any]:
        """The same in XGBoost's names, for a table of so many rows."""
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
            "nthread": _threads(rows),
            "verbosity": 0,
        }


@dataclass(frozen=True)
class LgbmParameters:
    """Hyperparameters of `lgbm`, as in `GbdtParameters`; trees grow by leaf, not by level."""

    rounds: int = GbdtParameters.rounds
    patience: int = GbdtParameters.patience
    learning_rate: float = GbdtParameters.learning_rate
    leaves: int = 31
    subsample: float = GbdtParameters.subsample
    columns_per_tree: float = GbdtParameters.columns_per_tree
    min_child_weight: float = GbdtParameters.min_child_weight
    point_weight: float = GbdtParameters.point_weight
    stores: str = GbdtParameters.stores
    fine_tune_rounds: int = GbdtParameters.fine_tune_rounds
    fine_tune_columns: int = GbdtParameters.fine_tune_columns
    seed: int = GbdtParameters.seed

    def for_engine(self, rows: int) -> dict[str, Any]:
        """The same in LightGBM's names, for a table of so many rows."""
        return {
            "learning_rate": self.learning_rate,
            "num_leaves": self.leaves,
            "bagging_fraction": self.subsample,
            "bagging_freq": 1,
            "feature_fraction": self.columns_per_tree,
            "min_sum_hessian_in_leaf": self.min_child_weight,
            "min_data_in_leaf": 1,
            "seed": self.seed,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": _threads(rows),
            "verbosity": -1,
        }


def _threads(rows: int, rows_per_thread: int = 20_000) -> int:
    """Threads meet at a barrier several times a level; on a busy machine few rows are slower so.

    6,700 rows beside other jobs took 125 s with two threads on two cores, 7 s with one.
    """
    return min(usable_cores(), 1 + rows // rows_per_thread)
