"""Finished runs of the tracking store as plain data."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hetfeat.errors import RequestError
from hetfeat.report.run import Run
from registry.models.mlflow_client import RUNS_A_PAGE, connect, pages, translated
from registry.models.version import PARENT_TAG
from registry.models.versions import resolve
from registry.tracking.command_run import COMMAND_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient

FINISHED = "FINISHED"
ENTRY_POINT_TAG, PARENT_RUN_TAG = "mlflow.project.entryPoint", "mlflow.parentRunId"


def finished_runs(client: "MlflowClient | None" = None) -> list[Run]:
    """Every finished run of every experiment, oldest first.

    A part of a run (a nested one) counts once it has finished, whatever became of the whole, and
    has the parameters of the whole beside its own.

    Raises:
        WorkFailed: The tracking store does not answer.
    """
    client = client or connect()
    with translated("read the runs of the tracking store"):
        found = {run.info.run_id: run for run in _every(client)}
        makers = _makers(client, found.values())
    done = [run for run in found.values() if run.info.status == FINISHED]
    return sorted((_plain(run, found, makers) for run in done), key=lambda run: run.started)


def history(
    run_id: str, metric: str, client: "MlflowClient | None" = None
) -> list[tuple[int, float]]:
    """Values of a metric by step, ascending; the last one logged of each step."""
    client = client or connect()
    with translated(f"read {metric} of run {run_id}"):
        points = client.get_metric_history(run_id, metric)
    return sorted({point.step: point.value for point in points}.items())


def _every(client: "MlflowClient") -> Iterator[Any]:
    ids = [found.experiment_id for found in pages(client.search_experiments, RUNS_A_PAGE)]
    if ids:
        yield from pages(lambda **page: client.search_runs(ids, **page), RUNS_A_PAGE)


def _makers(client: "MlflowClient", runs: Any) -> dict[str, str | None]:
    """Which run made each version that a run began with; None where it is gone."""
    made: dict[str, str | None] = {}
    for uri in {run.data.tags[PARENT_TAG] for run in runs if PARENT_TAG in run.data.tags}:
        try:
            made[uri] = resolve(uri, client=client).run_id
        except RequestError:
            made[uri] = None
    return made


def _plain(run: Any, found: Mapping[str, Any], makers: Mapping[str, str | None]) -> Run:
    tags, info = run.data.tags, run.info
    parent = found.get(tags.get(PARENT_RUN_TAG, ""))
    whole = parent or run
    device = tags.get("device") or tags.get("devices")
    return Run(
        id=info.run_id,
        command=_command(whole),
        started=datetime.fromtimestamp(info.start_time / 1000, UTC),
        # A run that was ended from outside may have no time of it.
        duration_s=((info.end_time or info.start_time) - info.start_time) / 1000,
        device=device or whole.data.tags.get("system.cpu", ""),
        params={**(parent.data.params if parent else {}), **run.data.params},
        metrics=dict(run.data.metrics),
        tags={**(parent.data.tags if parent else {}), **tags},
        parent=tags.get(PARENT_RUN_TAG),
        source=makers.get(tags.get(PARENT_TAG, "")),
    )


def _command(run: Any) -> str:
    """The command of a run; older ones say it only in their name, or as an entry point."""
    tags = run.data.tags
    entry_point = tags.get(ENTRY_POINT_TAG, "").replace("main", "train")
    name = (run.info.run_name or "").partition(" ")[0]
    return str(tags.get(COMMAND_TAG) or entry_point or name)
