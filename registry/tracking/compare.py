"""Runs side by side, and what the gates would say of the last in the place of the first."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetfeat.errors import RequestError, WorkFailed
from registry.files.pull import fetch
from registry.models.gates import REFUSED, GateResult, StandardGates
from registry.models.mlflow_client import condition, connect, translated
from registry.models.version import Version
from registry.models.versions import resolve, search_versions
from registry.tracking.command_run import DECIDING

if TYPE_CHECKING:
    from mlflow import MlflowClient

_RUN_ID = re.compile(r"[a-zA-Z0-9][\w-]{0,255}")
"""Pattern of a run's id, MLflow's own rule."""
_LEFT_OUT = (DECIDING, "progress/", "tuning/")
"""Texts before the names of metrics that are there under another name, and of those of a run in
flight, whose last ones say little of it."""
_SYSTEM = "system/"
"""Text before the names of MLflow's samples of the machine: the last ones say little of a run."""
_STAGE = "production"
_BETTER = {
    "higher": re.compile(r"(^|[._])(pca|top\d+|r2)($|_)"),
    "lower": re.compile(r"(^|[._])(rmse|loss|error|excess)$|_(ms|s|bytes|mb)$"),
}
"""What the name of a metric is like that is better the higher, or the lower, it is."""


@dataclass(frozen=True)
class Comparison:
    """Figures and parameters of runs, each a row with one value per run.

    Attributes:
        runs: Ids of the runs, in the order asked for.
        metrics: Figures by name, a value per run.
        parameters: Parameters in which the runs differ by name, a value per run.
    """

    runs: tuple[str, ...]
    metrics: Mapping[str, Sequence[float | None]]
    parameters: Mapping[str, Sequence[str | None]]


@dataclass(frozen=True)
class Judged:
    """What the figures of a metric come to.

    Attributes:
        better: Direction in which the metric is better, `higher` or `lower`; None if unknown.
        best: Index of the run in which it is best; None if it is not best in one alone.
        difference: Figure of the last run less that of the first; None if one has none.
    """

    better: str | None
    best: int | None
    difference: float | None


@dataclass(frozen=True)
class Promotion:
    """What the gates would say of the last run's version in the place of the first one's.

    Attributes:
        verdict: Sentence for people.
        passed: Whether every gate would let it pass; None where they were not asked.
        gates: Results of the gates, default none.
    """

    verdict: str
    passed: bool | None = None
    gates: tuple[GateResult, ...] = ()


def compare(
    names: Sequence[str], client: "MlflowClient | None" = None, system: bool = False
) -> Comparison:
    """Compares runs, each named by its id, or by a version that it made.

    Args:
        names: Two or more runs: ids, or versions that they made.
        client: Client of the tracking store; default None for the one that MLflow's variables name.
        system: Whether to give MLflow's samples of the machine, too; default False.

    Raises:
        RequestError: There is no such run.
    """
    client = client or connect()
    if len(names) < 2:
        raise RequestError(f"{len(names)} run to compare", "two or more", "name another one")
    runs = [_run(client, text) for text in names]
    left_out = _LEFT_OUT if system else (*_LEFT_OUT, _SYSTEM)
    metrics = _rows([run.data.metrics for run in runs])
    metrics = {name: row for name, row in metrics.items() if not name.startswith(left_out)}
    parameters = _rows([run.data.params for run in runs])
    return Comparison(
        tuple(run.info.run_id for run in runs),
        metrics,
        {name: row for name, row in parameters.items() if len(set(row)) > 1},
    )


def judged(metric: str, figures: Sequence[float | None]) -> Judged:
    """Which way a metric is better, in which run it is best, and how far the last is off."""
    first, last = figures[0], figures[-1]
    difference = None if first is None or last is None else last - first
    better = next((way for way, pattern in _BETTER.items() if pattern.search(metric)), None)
    known = [figure for figure in figures if figure is not None and math.isfinite(figure)]
    if better is None or len(set(known)) < 2:
        return Judged(better, None, difference)
    best = max(known) if better == "higher" else min(known)
    return Judged(better, figures.index(best) if known.count(best) == 1 else None, difference)


def promotion(names: Sequence[str], client: "MlflowClient | None" = None) -> Promotion:
    """Asks the gates of production; nothing is written.

    Args:
        names: Runs as for `compare`; the first and the last of them count.
        client: Client of the registry; default None for the one that MLflow's variables name.
    """
    client = client or connect()
    with translated("find the versions of the runs"):
        first, last = (_version(client, name) for name in (names[0], names[-1]))
    if first is None or last is None:
        without = names[0] if first is None else names[-1]
        return _not_asked(f"{without} made no version")
    if first.uri == last.uri:
        return _not_asked(f"both are {first.uri}")
    if first.name != last.name:
        return _not_asked(f"{first.uri} and {last.uri} are of two models")
    try:
        with translated(f"ask the gates of {last.uri}"):
            results = tuple(StandardGates(client, fetch)(last, first, _STAGE))
    except WorkFailed as error:  # figures compare without the artifacts
        return _not_asked(error.given)
    refused = [result.gate for result in results if result.outcome == REFUSED]
    move = f"{last.uri} in the place of {first.uri} in {_STAGE}"
    if refused:
        return Promotion(f"the gates would refuse {move}: {', '.join(refused)}", False, results)
    return Promotion(f"the gates would let {move}", True, results)


def _not_asked(why: str) -> Promotion:
    return Promotion(f"the gates were not asked: {why}")


def _is_version(name: str) -> bool:
    return "/" in name or "@" in name


def _run(client: "MlflowClient", name: str) -> Any:
    run_id = name
    if _is_version(name):
        version = resolve(name, client=client)
        if version.run_id is None:
            raise RequestError(f"'{name}'", "a version made by a run", "name a run by its id")
        run_id = version.run_id
    elif not _RUN_ID.fullmatch(name):
        raise RequestError(f"'{name}'", "a run's id, or models:/NAME/VERSION", "correct it")
    with translated(f"read run {name}"):
        return client.get_run(run_id)


def _version(client: "MlflowClient", name: str) -> Version | None:
    """The version of that name, or the newest one that the run of that id made."""
    if _is_version(name):
        return resolve(name, client=client)
    made = map(Version.of, search_versions(client, condition("run_id", name)))
    return max(made, key=lambda version: version.version, default=None)


def _rows(columns: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = sorted({name for column in columns for name in column})
    return {name: [column.get(name) for column in columns] for name in names}
