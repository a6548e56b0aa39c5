"""The MLflow run that a command logs into."""

import contextlib
import logging
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetfeat.errors import RequestError
from registry.models import process
from registry.models.mlflow_client import set_defaults, translated
from registry.models.version import Version
from registry.models.versions import logged_model_id
from registry.tracking.environment_tags import system_tags
from registry.tracking.live import live
from registry.tracking.packages import missing

if TYPE_CHECKING:
    import mlflow
    from mlflow.data.dataset import Dataset

EXPERIMENT = "hetfeat"
KIND_TAG = "mlflow.experimentKind"
PROJECT_RUN, PROJECT_EXPERIMENT = "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_NAME"
_EXPERIMENT_ID = "MLFLOW_EXPERIMENT_ID"
COMMAND_TAG = "command"
"""Tag with the command that made a run: inside `mlflow run` its name is another."""
PROCESS_TAG = "process"
"""Tag with the process that logs into a run, as `registry.models.process` describes it."""
DIGEST_CHARACTERS = 36
"""Most characters that MLflow keeps of a data set's digest; a tag carries the whole."""
MOST_CHARACTERS = 250
"""Most characters of a run's name that MLflow's database holds."""
DECIDING = "decides/"
"""Text before the names of the few metrics that decide: MLflow sorts sections by such prefixes, and
metrics without one come after them."""
_NOISY = ("alembic", "mlflow", "git")


@contextlib.contextmanager
def tracked_run(
    name: str, tags: Mapping[str, str], run_id: str | None = None
) -> Iterator["mlflow.ActiveRun"]:
    """A run for the length of the block: that of `mlflow run` if there is one, else a new one.

    It goes where MLflow's own variables say, by default into `mlflow.db` in the working folder.
    An exception inside ends it as failed, an interrupt as killed. `run_id` goes on with that run.
    The first word of the name is the command. What the machine does meanwhile is logged, too, and
    the figures that `hetfeat.progress` tells of.

    Raises:
        HetfeatError: The tracking store, its artifacts or the disk failed, at whatever step; the
            package of its artifact store is missing.
    """
    quieten()
    import mlflow

    from registry.tracking.system_metrics import monitored

    inside_project = bool(run_id or os.environ.get(PROJECT_RUN))
    with translated(f"log '{name}' into MLflow"):
        chosen = os.environ.get(PROJECT_EXPERIMENT) or os.environ.get(_EXPERIMENT_ID)
        if not inside_project:
            _check_experiment(mlflow.MlflowClient())
        if not inside_project and not chosen:
            experiment = mlflow.set_experiment(EXPERIMENT)
            os.environ.pop(_EXPERIMENT_ID, None)  # MLflow sets it, as if the user had
            if KIND_TAG not in experiment.tags:  # else MLflow's pages open as for language models
                mlflow.set_experiment_tag(KIND_TAG, "custom_model_development")
        own_name = None if inside_project else name
        with (
            mlflow.start_run(run_id, run_name=own_name, log_system_metrics=False) as run,
            _killed_by_an_interrupt(),
            monitored(run.info.run_id, resumed=inside_project),
        ):
            begun = {COMMAND_TAG: name.partition(" ")[0], PROCESS_TAG: process.describe()}
            mlflow.set_tags({**begun, **tags, **system_tags()})
            _check_artifacts(run.info.artifact_uri)
            with live(run.info.run_id):
                yield run


def run_name(command: str, *what: str, **settings: object) -> str:
    """A name that tells a run from others of its command.

    Args:
        command: Name of the command.
        what: What it works on.
        settings: Left out where None, False or empty; True is told by its name alone.
    """
    words = []
    for key, value in settings.items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        if value is not None and value is not False and text:
            words.append(key if value is True else f"{key}={text}")
    return " ".join([command, *what, *words])[:MOST_CHARACTERS]


def _check_experiment(client: "mlflow.MlflowClient") -> None:
    """Raises RequestError where runs would go into an experiment that was deleted."""
    name, number = os.environ.get(PROJECT_EXPERIMENT), os.environ.get(_EXPERIMENT_ID)
    by_number = bool(number) and not name
    found = (
        client.get_experiment(number or "")
        if by_number
        else client.get_experiment_by_name(name or EXPERIMENT)
    )
    if found is not None and found.lifecycle_stage != "active":
        raise RequestError(
            f"experiment '{found.name}', which was deleted",
            "one that exists, or a name that is free",
            f"`mlflow experiments restore --experiment-id {found.experiment_id}`, or name another "
            f"in {PROJECT_EXPERIMENT}",
        )


def _check_artifacts(uri: str) -> None:
    """Raises WorkFailed, before any work, where the package of an artifact store is missing."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    try:
        get_artifact_repository(uri)
    except ImportError as error:
        raise missing(error) from error


@contextlib.contextmanager
def _killed_by_an_interrupt() -> Iterator[None]:
    """Ends the active run as killed where MLflow would end it as failed."""
    import mlflow

    try:
        yield
    except KeyboardInterrupt:
        mlflow.end_run("KILLED")
        raise


@contextlib.contextmanager
def beside_the_project_run() -> Iterator[None]:
    """Runs of the block are new ones, in the experiment of the run of `mlflow run` if there is one.

    That run is there again afterwards.
    """
    project_run = os.environ.pop(PROJECT_RUN, None)
    if project_run is None:
        yield
        return
    from mlflow import MlflowClient

    with translated(f"read run {project_run}"):
        client = MlflowClient()
        experiment = client.get_experiment(client.get_run(project_run).info.experiment_id)
    before = os.environ.get(PROJECT_EXPERIMENT)
    os.environ[PROJECT_EXPERIMENT] = experiment.name
    try:
        yield
    finally:
        os.environ[PROJECT_RUN] = project_run
        if before is None:
            del os.environ[PROJECT_EXPERIMENT]


def quieten() -> None:
    """Keeps MLflow from telling what it does."""
    set_defaults()
    import mlflow  # noqa: F401  # which sets levels of its own

    for logger in _NOISY:
        logging.getLogger(logger).setLevel(logging.WARNING)
    # A store that is lost while the machine is sampled: the command itself says so.
    logging.getLogger("mlflow.system_metrics").setLevel(logging.CRITICAL)


@contextlib.contextmanager
def nested_run(name: str, tags: Mapping[str, str]) -> Iterator["mlflow.ActiveRun"]:
    """A run under the active one, for the length of the block, with the same facts as its own."""
    import mlflow

    facts = {PROCESS_TAG: process.describe(), **tags, **system_tags()}
    with (
        mlflow.start_run(run_name=name, nested=True, tags=facts) as run,
        _killed_by_an_interrupt(),
        live(run.info.run_id),
    ):
        yield run


def log_resolved(settings: Mapping[str, Any]) -> None:
    """Logs what the command's options came to.

    `mlflow run` has logged the options as given, under their own names, and a parameter cannot
    be logged twice with two values: hence the prefix.
    """
    import mlflow

    mlflow.log_params({f"resolved.{key}": value for key, value in settings.items()})


def log_records(path: Path, digest: str, context: str) -> "Dataset":
    """Logs a record store as an input of the active run; the tag has the whole of its digest.

    Args:
        path: Folder of the store.
        digest: Digest of the store as it was when it was read.
        context: Purpose that it was read for.
    """
    import mlflow

    dataset = _dataset_of(path, digest)
    mlflow.log_input(dataset, context=context, tags={"digest": digest})
    return dataset


def log_source_model(version: Version) -> None:
    """Logs the model that a version is of as an input of the active run, where MLflow knows it."""
    import mlflow
    from mlflow.entities import LoggedModelInput

    model_id, run = logged_model_id(version.source), mlflow.active_run()
    if model_id is not None and run is not None:
        mlflow.MlflowClient().log_inputs(run.info.run_id, models=[LoggedModelInput(model_id)])


def _dataset_of(path: Path, digest: str) -> "Dataset":
    """A record store as an MLflow data set: where it lies and its digest, not its contents."""
    from mlflow.data.dataset_source_registry import resolve_dataset_source
    from mlflow.data.meta_dataset import MetaDataset

    with warnings.catch_warnings():
        # MLflow registers its class for local paths twice, then warns that it cannot choose.
        warnings.filterwarnings("ignore", message=".*interpreted in multiple ways")
        source = resolve_dataset_source(str(path.resolve()))
    return MetaDataset(  # type: ignore[abstract]  # it is not, only so annotated
        source, name=path.name, digest=digest[:DIGEST_CHARACTERS]
    )


def log_table(columns: Mapping[str, list[Any]], path: str) -> None:
    """Logs a table into the active run, as MLflow's pages show and compare them.

    Args:
        columns: Values of each column by its name.
        path: Path of the file among the artifacts of the run, which ends in `.json`.
    """
    import mlflow

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*select_dtypes")  # MLflow's own call
        mlflow.log_table(dict(columns), path)


def log_deciding(metrics: Mapping[str, float | None]) -> None:
    """Logs the few figures by which runs are compared, in a section that MLflow's page opens with.

    They are there under their own names, too. What is None or NaN is left out.
    """
    import mlflow

    known = {key: value for key, value in metrics.items() if value is not None}
    mlflow.log_metrics({DECIDING + key: v for key, v in known.items() if math.isfinite(v)})


def log_final(
    metrics: Mapping[str, float], model_id: str | None, dataset: "Dataset", step: int = 0
) -> None:
    """Logs final figures of the run, linked to the logged model and the data set.

    A figure that does not exist (NaN) is left out: not every store takes it.

    Args:
        metrics: Figures by name.
        model_id: Id of the logged model, if there is one. Without it MLflow gives a model only what
            was logged at its own step before.
        dataset: Data set that they are of.
        step: Step of the figures; 0 by default, where MLflow's pages draw bars and no lines.
    """
    import mlflow

    known = {key: float(value) for key, value in metrics.items() if math.isfinite(value)}
    mlflow.log_metrics(known, step=step, model_id=model_id, dataset=dataset)
