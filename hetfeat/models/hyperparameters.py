"""Which hyperparameters of a model are worth searching, and over what range."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hetfeat.errors import RequestError
from hetfeat.models.aggregate import TABLES
from hetfeat.models.base import CostModel
from hetfeat.models.registry import model_class


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


@dataclass(frozen=True)
class Choice:
    """One of a few values."""

    values: tuple[Any, ...]


ROUNDS = "rounds"
_TREES: dict[str, Range | Choice] = {
    "learning_rate": Range(0.02, 0.4, log=True),
    "subsample": Range(0.5, 1.0),
    "columns_per_tree": Range(0.2, 1.0),
    "min_child_weight": Range(0.5, 30.0, log=True),
    "point_weight": Range(0.05, 0.6),
    "stores": Choice(TABLES),
}
_NETS: dict[str, Range | Choice] = {
    "batch": Choice((1, 4, 16, 64, 256)),
    ROUNDS: Choice((100, 200, 400)),
    "learning_rate": Range(1e-4, 5e-3, log=True),
    "weight_decay": Range(1e-6, 1e-2, log=True),
    "width": Choice((64, 128, 256)),
    "point_weight": Range(0.05, 1.0),
    "lambda_rank": Choice((False, True)),
}
SPACES: Mapping[str, Mapping[str, Range | Choice]] = {
    "xgb": {**_TREES, "max_depth": Range(3, 10)},
    "lgbm": {**_TREES, "leaves": Range(7, 127, log=True)},
    "mlp": _NETS,
    "attention": {
        **_NETS,
        "layers": Range(1, 3),
        "heads": Choice((1, 2, 4)),
        "unrolling": Range(1, 3),
    },
}
"""Spaces by name of the model. Those of networks cover the paper's Table 4, whose batches and
epochs they have. Epochs are worth searching because the rate falls over all of them; the rounds of
trees are not, for the valid side ends the training."""


def space_of(model: str, effort: str = "standard") -> Mapping[str, Range | Choice]:
    """What to search for a model; the rounds of a quick training stay those of its effort.

    A plug-in's model says so by its attribute `space`.

    Raises:
        RequestError: No such model, or one with nothing to search.
    """
    found = model_class(model)
    space: Mapping[str, Range | Choice] = SPACES.get(model) or getattr(found, "space", {})
    if not space:
        raise RequestError(
            f"model '{model}', which says of no hyperparameter what to search",
            "a plug-in's model with the attribute `space`",
            "train it with `hetfeat train --set`",
        )
    kept = {name: space for name, space in space.items() if name != ROUNDS}
    return kept if effort == "quick" else space


def build(model: str, effort: str, seed: int, values: Mapping[str, Any]) -> CostModel:
    """An untrained model of an effort, with some hyperparameters changed."""
    made: Any = model_class(model).for_effort(effort, seed)
    changed: CostModel = type(made)(dataclasses.replace(made.settings, **values))
    return changed
