"""Runs side by side."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetfeat.errors import RequestError
from registry.models.mlflow_client import connect, translated
from registry.models.versions import resolve
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


def _run(client: "MlflowClient", name: str) -> Any:
    run_id = name
    if "/" in name or "@" in name:
        version = resolve(name, client=client)
        if version.run_id is None:
            raise RequestError(f"'{name}'", "a version made by a run", "name a run by its id")
        run_id = version.run_id
    elif not _RUN_ID.fullmatch(name):
        raise RequestError(f"'{name}'", "a run's id, or models:/NAME/VERSION", "correct it")
    with translated(f"read run {name}"):
        return client.get_run(run_id)


def _rows(columns: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = sorted({name for column in columns for name in column})
    return {name: [column.get(name) for column in columns] for name in names}
