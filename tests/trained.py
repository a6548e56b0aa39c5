"""A registry with a cost model in it, for tests of what is done with one."""

import contextlib
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import stores

import mlproject
from registry.cli import app

MODEL = "costmodel.cpu-x86"


def made_once(folder: Path) -> Path:
    """The registry that this run of the tests trained: by whichever worker asked first."""
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            draft = folder.with_name(f"{folder.name}-draft")
            draft.mkdir()
            with _working_in(draft):
                _train_and_promote()
            move(draft, folder)
    return folder


def _train_and_promote() -> None:
    from registry.files.moves import promote

    stores.make_store(Path("records"), tasks=6, per_task=8)
    assert app.run(mlproject.cli, ["train", "--records", "records", "--effort", "quick"]) == 0
    for stage in ("staging", "production"):
        promote(MODEL, 1, stage, reason="made for tests", force=True)


def move(old: Path, new: Path) -> None:
    """Copies a folder with a registry, whose database names the folder of its files."""
    shutil.copytree(old, new, dirs_exist_ok=True)
    with contextlib.closing(sqlite3.connect(new / "mlflow.db")) as connection, connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
                if "CHAR" in kind or "TEXT" in kind:
                    connection.execute(
                        f"UPDATE {table} SET {column} = replace({column}, ?, ?)"
                        f" WHERE instr({column}, ?)",
                        (str(old), str(new), str(old)),
                    )


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """In the folder, whose registry is the one that commands find."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for variable in [name for name in os.environ if name.startswith("MLFLOW_")]:
            patch.delenv(variable)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
        patch.setenv("HETFEAT_HOME", str(folder / "home"))
        tests = Path(__file__).parent
        patch.setenv("PYTHONPATH", os.pathsep.join([str(tests.parent), str(tests)]))
        yield


@contextmanager
def registry_with_a_model(folder: Path, trained_once: Path) -> Iterator[Path]:
    """Works in `folder`, in whose registry a model has been trained and is in production.

    Args:
        folder: Empty folder.
        trained_once: Registry to copy, of the fixture of this name.
    """
    move(trained_once, folder)
    with _working_in(folder):
        yield folder
