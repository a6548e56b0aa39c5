"""MLflow: its store, its variables, and whether `mlflow run` works here."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from hetfeat.errors import HetfeatError
from registry.jobs.optuna_study import holds_studies
from registry.maintenance.project_env import environment_name, environments_root
from registry.maintenance.subprocess_check import CheckFinding
from registry.models.mlflow_client import connect, translated

PROJECT_FILE = "MLproject"


def tracking() -> Iterator[CheckFinding]:
    """MLflow's store answers, and is not Optuna's as well: each migrates the other's tables."""
    import mlflow

    uri = mlflow.get_tracking_uri()
    database = uri.partition(":")[0].partition("+")[0]
    if database == "sqlite" and not Path(uri.partition("///")[2]).is_file():
        return  # made when it is first needed
    try:
        with translated("reach the tracking store"):
            connect().search_registered_models(max_results=1)
            shared = not uri.startswith("http") and holds_studies(uri)
    except HetfeatError as error:
        yield error.given, error.action
        return
    if shared:
        yield (
            "the tracking store holds studies of Optuna: each migrates the other's tables",
            "give `hetfeat hpo` a --storage of its own",
        )


def variables() -> Iterator[CheckFinding]:
    """Variables of MLflow that mean something else than they seem to."""
    if os.environ.get("MLFLOW_RUN_ID"):
        yield (
            "MLFLOW_RUN_ID is set: every command logs into that one run, and the second fails on "
            "its parameters",
            "unset it; `mlflow run` sets it for the process it starts",
        )
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    path = uri.partition("///")[2] if uri.startswith("sqlite:") else uri
    if path and "://" not in path and not Path(path).is_absolute():
        yield (
            f"MLFLOW_TRACKING_URI is {uri!r}, relative: another folder, or `mlflow run`, means "
            "another store",
            f"unset it, or name the whole path, as in sqlite:///{Path.cwd() / 'mlflow.db'}",
        )


def project() -> Iterator[CheckFinding]:
    """In a project's folder: MLflow finds its file, and an environment that was made for it."""
    here = Path.cwd()
    files = [path.name for path in here.iterdir() if path.name.lower() == PROJECT_FILE.lower()]
    if PROJECT_FILE not in files:
        return
    if others := [name for name in files if name != PROJECT_FILE]:
        yield (
            f"'{others[0]}' beside {PROJECT_FILE}: `mlflow run` takes whichever comes first, "
            "without regard to case",
            f"rename '{others[0]}'",
        )
    if (here / "python_env.yaml").is_file() and shutil.which("pyenv") is None:
        link = environments_root() / environment_name(here)
        if not link.exists() or " " in str(link):
            yield (
                f"`mlflow run .` finds no environment at {link} and no pyenv to make one",
                "run `make env` (MLFLOW_ENV_ROOT must have no space in it), or add "
                "--env-manager local",
            )
