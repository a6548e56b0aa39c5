"""The link that lets a plain `mlflow run .` use this clone's `.venv`.

MLflow builds the environment of a project with pyenv, unless the folder
`$MLFLOW_ENV_ROOT/mlflow-<hash of python_env.yaml>` is already there. `make env` has built `.venv`
from the same pins, so a symbolic link under that name saves pyenv and a second installation.
"""

import os
import sys
from pathlib import Path

NAME_CACHE = "mlflow-env-name"


def environments_root() -> Path:
    """The folder where MLflow looks for environments."""
    return Path(os.environ.get("MLFLOW_ENV_ROOT") or Path.home() / ".mlflow" / "envs")


def environment_name(project: Path) -> str:
    """The name under which MLflow looks for a project's environment, from its private functions.

    Args:
        project: Folder with `python_env.yaml`. The running Python's version is part of the name.
    """
    from mlflow.utils.environment import _PythonEnv
    from mlflow.utils.virtualenv import _get_virtualenv_name

    declared = _PythonEnv.from_yaml(project / "python_env.yaml")
    return str(_get_virtualenv_name(declared, project))


def link_environment(link: Path, venv: Path) -> str:
    """Points `link` at `venv`; replaces any other link, never touches a real folder.

    Args:
        link: Path where MLflow looks for the environment.
        venv: Folder of the environment to use.

    Returns:
        A line that says what was done, or why nothing was.

    Raises:
        OSError: The folder of the link cannot be written.
    """
    if link.is_symlink() and link.readlink() == venv:
        return f"mlflow run uses {venv}"
    if link.exists() and not link.is_symlink():
        return f"mlflow run uses {link}, a real folder, left as it is"
    link.parent.mkdir(parents=True, exist_ok=True)
    draft = link.with_name(f"{link.name}.{os.getpid()}")
    draft.symlink_to(venv)
    draft.replace(link)
    return f"mlflow run uses {venv}, linked from {link}"


def main() -> int:
    """Links the `.venv` of the project in the working folder; a warning is not a failure."""
    project = Path.cwd()
    venv = project / ".venv"
    cache = venv / NAME_CACHE
    if not cache.is_file():
        cache.write_text(environment_name(project))
    link = environments_root() / cache.read_text()
    try:
        done = link_environment(link, venv)
    except OSError as error:
        done = _warning(f"{link.parent} cannot be written ({error.strerror})")
    if " " in str(link):
        done = _warning(f"MLflow cannot use '{link.parent}', which has a space in it")
    sys.stderr.write(done + "\n")
    return 0


def _warning(trouble: str) -> str:
    return (
        f"hetfeat: {trouble}; expected a writable MLFLOW_ENV_ROOT without spaces; set it to one, "
        "or run `mlflow run . --env-manager local` inside .venv"
    )


if __name__ == "__main__":
    sys.exit(main())
