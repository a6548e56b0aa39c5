"""Which hyperparameters of a model are worth searching, and over what range."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hetfeat.errors import RequestError
from hetfeat.models.base import CostModel
from hetfeat.models.table import model_class


@dataclass(frozen=True)
class Range:
    """Values from `low` to `high`; whole numbers where both are, and by ratio where `log`."""

    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether only whole numbers count."""
        return isinstance(self.low, int) and isinstance(self.high, int)


SPACES: Mapping[str, Mapping[str, Range]] = {
    "xgb": {
        "learning_rate": Range(0.02, 0.4, log=True),
        "max_depth": Range(3, 10),
        "subsample": Range(0.5, 1.0),
        "columns_per_tree": Range(0.2, 1.0),
        "min_child_weight": Range(0.5, 30.0, log=True),
        "point_weight": Range(0.05, 0.6),
    },
}
"""By name of the model. Rounds are not among them: the valid side ends the training."""


def space_of(model: str) -> Mapping[str, Range]:
    """What to search for a model.

    Raises:
        RequestError: No such model, or nothing to search.
    """
    model_class(model)
    if model not in SPACES:
        raise RequestError(
            f"model {model!r}, whose hyperparameters have no ranges",
            f"one of {', '.join(SPACES)}",
            "choose one of them",
        )
    return SPACES[model]


def build(model: str, effort: str, seed: int, values: Mapping[str, Any]) -> CostModel:
    """An untrained model of an effort, with some hyperparameters changed."""
    made: Any = model_class(model).for_effort(effort, seed)
    changed: CostModel = type(made)(dataclasses.replace(made.settings, **values))
    return changed
