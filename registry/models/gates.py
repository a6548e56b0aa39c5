"""What a version must show before it moves into a stage."""

import contextlib
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetfeat.errors import DataError
from hetfeat.features.columns import FEATURES_VERSION
from registry.models.digests import ReadFiles, registered_digest
from registry.models.gate_rules import FigureRule, Gate, Rules, load_rules
from registry.models.version import (
    EVALUATION_TAG,
    FEATURES_TAG,
    MANIFEST_TAG,
    METRIC_PREFIX,
    PARENT_TAG,
    PRECISION_TAG,
    Version,
    figure_of,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

PASSED, REFUSED, OVERRIDDEN, SKIPPED = "passed", "refused", "overridden", "skipped"
MAX_FIGURES_CHARACTERS = 160
"""Most characters of a gate's figures: an entry of the ledger has room for those of all gates."""
ARTIFACTS: Gate = "artifacts"
"""Gate that asks whether a version's files are what was registered. No override passes it."""


@dataclass(frozen=True)
class GateResult:
    """What one gate said.

    Attributes:
        gate: Name of the gate.
        outcome: `passed`, `refused`, `overridden` or `skipped`.
        figures: Text that says what it compared, for people.
    """

    gate: str
    outcome: str
    figures: str


Gates = Callable[[Version, Version | None, str], list[GateResult]]
"""Callable that asks the gates of the version to move, the one it would replace, and the stage."""


@dataclass(frozen=True)
class Candidate:
    """A version at a gate.

    Attributes:
        client: Client of the registry.
        rules: Rules that the version must meet.
        version: Version to move.
        replaced: The version that it would replace, if any.
    """

    client: "MlflowClient"
    rules: Rules
    version: Version
    replaced: Version | None


class StandardGates:
    """The gates of the rules.

    The artifacts are read by `prepare`, before the lock is taken: they may be large, and they
    cannot change without being found out.

    Args:
        client: Client of the registry.
        read_files: Callable that reads a version's files.
        rules: Rules; default None for those that `load_rules` finds.
    """

    def __init__(
        self, client: "MlflowClient", read_files: ReadFiles, rules: Rules | None = None
    ) -> None:
        self.client, self.read_files, self.rules = client, read_files, rules or load_rules()
        self.intact: dict[tuple[str, str], GateResult] = {}

    def prepare(self, version: Version, to: str) -> None:
        """Does what takes long."""
        if ARTIFACTS in self.rules.names(kind_of(version), to):
            self.intact[_state_of(version)] = self._artifacts(version)

    def __call__(self, version: Version, replaced: Version | None, to: str) -> list[GateResult]:
        """What each gate says."""
        candidate = Candidate(self.client, self.rules, version, replaced)
        results: list[GateResult] = []
        for name in self.rules.names(kind_of(version), to):
            if name == ARTIFACTS:
                results.append(self.intact.get(_state_of(version)) or self._artifacts(version))
            else:
                results += GATES[name](candidate)
        return [GateResult(r.gate, r.outcome, r.figures[:MAX_FIGURES_CHARACTERS]) for r in results]

    def _artifacts(self, version: Version) -> GateResult:
        try:
            digest = registered_digest(self.client, version)
            self.read_files(self.client, version, digest)
        except DataError as error:
            return GateResult(ARTIFACTS, REFUSED, f"{error.given}; expected {error.expected}")
        return GateResult(ARTIFACTS, PASSED, f"manifest {digest[:16]}")


def _state_of(version: Version) -> tuple[str, str]:
    """What was read of a version counts for as long as its tag names the same files."""
    return version.uri, version.tags.get(MANIFEST_TAG, "")


def kind_of(version: Version) -> str:
    """`cost_model` or `bundle`, by the name of the registered model."""
    return "bundle" if version.name.startswith("network.") else "cost_model"


def figure(client: "MlflowClient", version: Version, name: str) -> float | None:
    """A figure of a version: as registered, else as its run logged it; NaN for what is no number.

    `is_usable` tells whether it can be one.
    """
    from mlflow.exceptions import MlflowException

    if METRIC_PREFIX + name in version.tags:
        tagged = figure_of(version, name)
        return math.nan if tagged is None else tagged
    if version.run_id:
        with contextlib.suppress(MlflowException):
            value = client.get_run(version.run_id).data.metrics.get(name)
            return None if value is None else float(value)
    return None


_LOWEST = {"rmse": 0.0, "max_abs_error": 0.0, "tolerance": 0.0, "r2": -math.inf}
_SHARES = re.compile(r"pca|top\d+|top1_agreement|pca_.*|.*_pca")
"""Names of figures from 0 to 1."""
_POSITIVE = ("latency_ms",)


def is_usable(name: str, value: float) -> bool:
    """Whether a figure can have a value: finite, and in its range."""
    if not math.isfinite(value):
        return False
    if name in _POSITIVE:
        return value > 0
    if _SHARES.fullmatch(name):
        return 0 <= value <= 1
    return value >= _LOWEST.get(name, -math.inf) and (name != "r2" or value <= 1)


def _usable(client: "MlflowClient", version: Version | None, name: str) -> float | None:
    """A figure to compare with; None where there is none that can be."""
    value = None if version is None else figure(client, version, name)
    return value if value is not None and is_usable(name, value) else None


def _impossible(gate: str, name: str, value: float | None) -> GateResult | None:
    """The refusal of a figure that cannot be; nothing for one that can, or that is not there."""
    if value is None or is_usable(name, value):
        return None
    return GateResult(gate, REFUSED, f"{name} {value:.4g}, which no measurement gives")


def _features(at: Candidate) -> Iterator[GateResult]:
    recorded = at.version.tags.get(FEATURES_TAG)
    if recorded is None:
        yield GateResult("features", SKIPPED, "no feature version recorded")
        return
    outcome = PASSED if recorded == str(FEATURES_VERSION) else REFUSED
    yield GateResult(
        "features", outcome, f"version {recorded}, this program has {FEATURES_VERSION}"
    )


def _signature(at: Candidate) -> Iterator[GateResult]:
    wanted = at.replaced and _inputs(at.replaced)
    inputs = _inputs(at.version) if wanted else None
    if not wanted or inputs == wanted:
        yield GateResult("signature", PASSED, "the inputs are the same" if wanted else "the first")
        return
    yield GateResult("signature", REFUSED, "other inputs than the version that it would replace")


def _inputs(version: Version) -> Any:
    """Inputs of a version's signature as plain data, or None if it has none."""
    from mlflow.exceptions import MlflowException
    from mlflow.models import get_model_info

    try:
        signature = get_model_info(version.uri).signature
    except (MlflowException, OSError):
        return None
    return signature.inputs.to_dict() if signature and signature.inputs else None


def _figures(at: Candidate) -> Iterator[GateResult]:
    for name, rule in at.rules.figures.items():
        new = figure(at.client, at.version, name)
        old = _usable(at.client, at.replaced, name)
        if refused := _impossible(name, name, new):
            yield refused
            continue
        if new is None:
            if rule.required or old is not None:
                yield GateResult(name, REFUSED, "not measured")
            continue
        yield _compared(at, name, rule, new, old)


def _compared(
    at: Candidate, name: str, rule: FigureRule, new: float, old: float | None
) -> GateResult:
    if rule.at_least is not None and not new >= rule.at_least:
        return GateResult(name, REFUSED, f"{new:.4f}, at least {rule.at_least}")
    if at.replaced is None:
        return GateResult(name, PASSED, f"{new:.4f}, nothing to replace")
    against = f"version {at.replaced.version}"
    sets = [version.tags.get(EVALUATION_TAG) for version in (at.version, at.replaced)]
    if old is None or sets[0] is None or sets[0] != sets[1]:
        why = f"{against} has no such usable figure" if old is None else "another evaluation set"
        outcome = REFUSED if at.rules.not_comparable == "refuse" and old is not None else SKIPPED
        return GateResult(name, outcome, f"{new:.4f}, not comparable with {against}: {why}")
    outcome = PASSED if new >= old - rule.may_fall_by else REFUSED
    return GateResult(
        name, outcome, f"{new:.4f}, {old:.4f} of {against}, may fall by {rule.may_fall_by}"
    )


def _transfer(at: Candidate) -> Iterator[GateResult]:
    def judged(source: float, tuned: float) -> tuple[bool, str]:
        sound = tuned >= source - at.rules.transfer_may_fall_by
        return sound, f"PCA {tuned:.4f}, {source:.4f} before the transfer"

    if PARENT_TAG in at.version.tags:
        missing = "pca_source and pca_transfer not measured"
        yield _of_two(at, "transfer", ("pca_source", "pca_transfer"), missing, judged)


def _numerics(at: Candidate) -> Iterator[GateResult]:
    def judged(error: float, tolerance: float) -> tuple[bool, str]:
        return error <= tolerance, f"error {error:.3g}, tolerance {tolerance:.3g}"

    missing = "never verified against the framework"
    yield _of_two(at, "numerics", ("max_abs_error", "tolerance"), missing, judged)


def _accuracy(at: Candidate) -> Iterator[GateResult]:
    if PRECISION_TAG not in at.version.tags:  # what a user has quantised himself, he judges
        return
    for name, least in at.rules.accuracy:
        value = figure(at.client, at.version, name)
        if refused := _impossible("accuracy", name, value):
            yield refused
        elif value is not None:
            outcome = PASSED if value >= least else REFUSED
            yield GateResult("accuracy", outcome, f"{name} {value:.4g}, at least {least:.4g}")
        elif name == "snr_db":
            yield GateResult("accuracy", REFUSED, "never compared with float32")


def _of_two(
    at: Candidate,
    gate: str,
    names: tuple[str, str],
    missing: str,
    judged: Callable[[float, float], tuple[bool, str]],
) -> GateResult:
    """What a gate says that compares two figures of the version itself."""
    first, second = (figure(at.client, at.version, name) for name in names)
    for name, value in zip(names, (first, second), strict=True):
        if refused := _impossible(gate, name, value):
            return refused
    if first is None or second is None:
        return GateResult(gate, REFUSED, missing)
    sound, figures = judged(first, second)
    return GateResult(gate, PASSED if sound else REFUSED, figures)


def _latency(at: Candidate) -> Iterator[GateResult]:
    new = figure(at.client, at.version, "latency_ms")
    old = _usable(at.client, at.replaced, "latency_ms")
    if refused := _impossible("latency", "latency_ms", new):
        yield refused
        return
    if new is None:
        yield GateResult("latency", REFUSED, "not measured")
        return
    if at.replaced is None or old is None:
        why = "nothing to compare with"
        if at.replaced is not None:
            why = f"not comparable with version {at.replaced.version}: it has no usable latency"
        yield GateResult("latency", PASSED, f"{new:.3f} ms, {why}")
        return
    outcome = PASSED if new <= old * at.rules.latency_ratio else REFUSED
    limit = f"at most {at.rules.latency_ratio} of {old:.3f} ms of version {at.replaced.version}"
    yield GateResult("latency", outcome, f"{new:.3f} ms, {limit}")


GATES: dict[Gate, Callable[[Candidate], Iterator[GateResult]]] = {
    "features": _features,
    "signature": _signature,
    "figures": _figures,
    "transfer": _transfer,
    "numerics": _numerics,
    "accuracy": _accuracy,
    "latency": _latency,
}
"""Gates by the name that the rules call them; that of the artifacts is handed in."""
