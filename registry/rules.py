"""The declarative file that says which gates there are and what they ask for."""

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetfeat.errors import DataError
from hetfeat.parsing import read_yaml

DEFAULTS = Path(__file__).with_name("gates.yaml")
FORMAT = 1
KINDS = ("cost_model", "bundle")


@dataclass(frozen=True)
class FigureRule:
    """What one figure must be; higher is better.

    Attributes:
        required: Refuse a version without it.
        at_least: Whatever it replaces.
        may_fall_by: Below the figure of the version it replaces.
    """

    required: bool = False
    at_least: float | None = None
    may_fall_by: float = 0.0


@dataclass(frozen=True)
class Rules:
    """The content of the file.

    Attributes:
        gates: Names of gates, by kind and stage.
        figures: By name.
        not_comparable: `refuse` or `skip`.
        transfer_may_fall_by: Of the PCA, from source to transfer-tuned.
        latency_ratio: Of a bundle to the one it replaces.
    """

    gates: Mapping[str, Mapping[str, tuple[str, ...]]]
    figures: Mapping[str, FigureRule]
    not_comparable: str = "refuse"
    transfer_may_fall_by: float = 0.0
    latency_ratio: float = 1.03

    def names(self, kind: str, stage: str) -> tuple[str, ...]:
        """Gates on the way of a kind of version into a stage."""
        return tuple(self.gates.get(kind, {}).get(stage, ()))


def load_rules(path: Path | None = None) -> Rules:
    """Reads the rules: those of `path`, of the file that HETFEAT_GATES names, or the defaults.

    Raises:
        DataError: The file cannot be read, or says something unknown.
    """
    path = path or Path(os.environ.get("HETFEAT_GATES") or DEFAULTS)
    try:
        content = read_yaml(path)
    except ValueError as error:
        raise _wrong(path, f"which cannot be read ({error})") from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise _wrong(path, f"not of format {FORMAT}")
    _check_keys(path, content, {field.name for field in dataclasses.fields(Rules)})
    try:
        content["figures"] = _figures(path, content.get("figures") or {})
        content["gates"] = _gates(path, content.get("gates") or {})
        for name in content.keys() & {"transfer_may_fall_by", "latency_ratio"}:
            content[name] = _finite(content[name])
        rules = Rules(**content)
    except (TypeError, ValueError, AttributeError) as error:
        raise _wrong(path, f"with a value of the wrong kind ({error})") from error
    if rules.not_comparable not in ("refuse", "skip"):
        raise _wrong(path, f"with not_comparable: {rules.not_comparable}")
    return rules


def _figures(path: Path, content: Mapping[str, Any]) -> dict[str, FigureRule]:
    names = {field.name for field in dataclasses.fields(FigureRule)}
    for rule in content.values():
        _check_keys(path, rule or {}, names)
    return {name: _figure(FigureRule(**(rule or {}))) for name, rule in content.items()}


def _figure(rule: FigureRule) -> FigureRule:
    """The rule with numbers as numbers: YAML may have read them as text."""
    if not isinstance(rule.required, bool):
        raise TypeError(f"required: {rule.required!r}")
    at_least = None if rule.at_least is None else _finite(rule.at_least)
    return dataclasses.replace(rule, at_least=at_least, may_fall_by=_finite(rule.may_fall_by))


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number}, which is no limit")
    return number


def _gates(path: Path, content: Mapping[str, Any]) -> dict[str, dict[str, tuple[str, ...]]]:
    from registry.gates import GATES

    _check_keys(path, content, set(KINDS))
    for stages in content.values():
        _check_keys(path, stages, {"staging", "production"})
        for names in stages.values():
            _check_keys(path, dict.fromkeys(names), set(GATES))
    return {
        kind: {stage: tuple(names) for stage, names in stages.items()}
        for kind, stages in content.items()
    }


def _check_keys(path: Path, content: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(map(str, content)) - known):
        raise DataError(
            f"gates file '{path}' with {', '.join(map(repr, unknown))}",
            f"names among {', '.join(sorted(known))}",
            "correct it",
        )


def _wrong(path: Path, what: str) -> DataError:
    return DataError(
        f"gates file '{path}', {what}", "a file like registry/gates.yaml", "correct HETFEAT_GATES"
    )
