"""The declarative file that says which gates there are and what they ask for."""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, StringConstraints

from hetfeat.errors import DataError
from hetfeat.parsing import Schema, parse, read_yaml

DEFAULTS = Path(__file__).with_name("gates.yaml")
_ACTION = "write a file like registry/models/gates.yaml, or correct HETFEAT_GATES"

Gate = Literal[
    "artifacts",
    "features",
    "signature",
    "figures",
    "transfer",
    "numerics",
    "accuracy",
    "latency",
]
_Kind = Annotated[str, StringConstraints(pattern="^(cost_model|bundle)$")]
_Stage = Annotated[str, StringConstraints(pattern="^(staging|production)$")]
_EMPTY = BeforeValidator(lambda value: {} if value is None else value)
"""Validator by which YAML's nothing, behind a key, is as good as `{}`."""


class _Written(Schema):
    """People write it: a misspelt key is refused, and a number may have been read as text."""

    model_config = ConfigDict(strict=False, extra="forbid")


class FigureRule(_Written):
    """What one figure must be; higher is better.

    Attributes:
        required: Whether to refuse a version without the figure, default False.
        at_least: Least value, whatever it replaces; default None.
        may_fall_by: Most by which it may lie below the figure of the version it replaces, default
            0.
    """

    required: StrictBool = False
    at_least: float | None = None
    may_fall_by: float = 0.0


class AccuracyRule(_Written):
    """What a network that was quantised must keep of the one of float32.

    Attributes:
        snr_db: Least ratio of signal to noise in decibels, default 10.
        top1_agreement: Least share of rows with the same first class, default 0.9.
    """

    snr_db: float = 10.0
    top1_agreement: float = 0.9


_Gates = Annotated[dict[_Kind, dict[_Stage, tuple[Gate, ...]]], _EMPTY]
_Figures = Annotated[dict[str, Annotated[FigureRule, _EMPTY]], _EMPTY]


class Rules(_Written):
    """The content of the file.

    Attributes:
        format: Version of the file's format.
        gates: Names of gates by kind and stage, default none.
        figures: Rules of figures by name, default none.
        not_comparable: Treatment of figures of two evaluation sets: `refuse` (the default) or
            `skip`.
        transfer_may_fall_by: Most by which the PCA may fall from source to transfer-tuned, default
            0.
        accuracy: Rule of bundles that were quantised, default that of `AccuracyRule`.
        latency_ratio: Largest ratio of a bundle's latency to that of the one it replaces, default
            1.03.
    """

    format: Literal[1]
    gates: _Gates = Field(default_factory=dict)
    figures: _Figures = Field(default_factory=dict)
    not_comparable: Literal["refuse", "skip"] = "refuse"
    transfer_may_fall_by: float = 0.0
    accuracy: Annotated[AccuracyRule, _EMPTY] = Field(default_factory=AccuracyRule)
    latency_ratio: float = 1.03

    def names(self, kind: str, stage: str) -> tuple[Gate, ...]:
        """Gates on the way of a kind of version into a stage."""
        return self.gates.get(kind, {}).get(stage, ())


def load_rules(path: Path | None = None) -> Rules:
    """Reads the rules: those of `path`, of the file that HETFEAT_GATES names, or the defaults.

    Raises:
        DataError: The file cannot be read, or says something unknown.
    """
    path = path or Path(os.environ.get("HETFEAT_GATES") or DEFAULTS)
    try:
        content = read_yaml(path)
    except ValueError as error:
        given = f"gates file '{path}', which cannot be read ({error})"
        raise DataError(given, "a file in YAML", _ACTION) from error
    return parse(content, Rules, what=f"gates file '{path}'", action=_ACTION)
