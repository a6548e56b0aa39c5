"""Hyperparameters as people give them: `name=value`, checked before anything is trained."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hetfeat.errors import RequestError, not_one_of
from hetfeat.models.base import CostModel
from hetfeat.models.hyperparameters import SPACES, Choice, Range
from hetfeat.models.registry import model_class

_MOST = 10**9
_AT_LEAST_1 = ("rounds", "patience", "batch", "width", "layers", "heads", "unrolling")
_RATES = ("learning_rate", "fine_tune_rate")
_SHARES = ("subsample", "columns_per_tree")
_LIMITS: Mapping[str, Range] = {
    **dict.fromkeys(_AT_LEAST_1, Range(1, _MOST)),
    **dict.fromkeys(_RATES, Range(1e-9, 1)),
    **dict.fromkeys(_SHARES, Range(0.01, 1)),
    "point_weight": Range(0, 1),
    "max_depth": Range(1, 24),
    "leaves": Range(2, 131_072),
    "members": Range(1, 100),
}
"""What engines take without failing; LightGBM has the limit of its leaves from its manual."""
_NOT_NEGATIVE = Range(0, _MOST)
_TRUTH = {"true": True, "false": False}
_SEED = "seed"


def parsed(model: str, given: Sequence[str]) -> dict[str, Any]:
    """Hyperparameters of a model by name, each of the type of its default.

    Args:
        model: Name of the model.
        given: Hyperparameters, each as `name=value`.

    Raises:
        RequestError: No such model, no such hyperparameter, or a value that it cannot have.
    """
    defaults = model_class(model).for_effort("standard", 0).parameters
    names = [name for name in defaults if name != _SEED]
    found: dict[str, Any] = {}
    for pair in given:
        name, equals, text = pair.partition("=")
        if not equals:
            raise RequestError(f"--set '{pair}'", "NAME=VALUE,NAME=VALUE", "give each a value")
        if name not in names:
            raise not_one_of(
                f"hyperparameter of {model}", name, names, "choose one of them; --seed has its own"
            )
        if name in found:
            raise RequestError(f"--set with {name} twice", "each name once", "leave one out")
        found[name] = _value(model, name, text, defaults[name])
    return found


def changed(name: str, effort: str, model: CostModel) -> dict[str, Any]:
    """The hyperparameters, by name, that differ from the defaults of an effort.

    Args:
        name: Name of the model in `registry.MODELS`.
        effort: Effort whose defaults are compared with.
        model: Model whose hyperparameters are compared.
    """
    own = model.parameters
    defaults = model_class(name).for_effort(effort, own[_SEED]).parameters
    return {key: own[key] for key in own if own[key] != defaults[key]}


def as_text(parameters: Mapping[str, Any]) -> str:
    """`name=value,...` of hyperparameters; empty where there are none."""
    return ",".join(f"{key}={_text(value)}" for key, value in parameters.items())


def _value(model: str, name: str, text: str, default: Any) -> Any:
    space = SPACES.get(model, {}).get(name)
    choices: dict[str, Any] = {}
    if isinstance(default, bool):
        choices = _TRUTH
    elif isinstance(default, str) and isinstance(space, Choice):
        choices = {value: value for value in space.values}
    elif isinstance(default, int | float):
        return _number(name, text, type(default))
    if choices and text not in choices:
        raise not_one_of(f"--set {name}", text, choices, "choose one of them")
    return choices.get(text, text)


def _number(name: str, text: str, kind: type[int] | type[float]) -> int | float:
    limits = _LIMITS.get(name, _NOT_NEGATIVE)
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not limits.low <= value <= limits.high:  # NaN is neither
        what = "a whole number" if kind is int else "a number"
        within = f"{what} from {limits.low:g} to {limits.high:g}"
        raise RequestError(f"--set {name}={text}", within, "correct the value")
    return value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
