import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the clone."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def migrated_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database, which takes seconds to make and nothing to copy."""
    from registry.client import connect

    path = tmp_path_factory.mktemp("mlflow") / "empty.db"
    connect(f"sqlite:///{path}").search_registered_models()
    return path


@pytest.fixture
def registry_here(migrated_database: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder, with a registry of its own as a command finds it by default.

    In memory where there is a tmpfs: MLflow's many small transactions each wait for the disk.
    """
    import mlflow

    for variable in [name for name in os.environ if name.startswith("MLFLOW_")]:
        monkeypatch.delenv(variable)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        folder = Path(name)
        shutil.copy(migrated_database, folder / "mlflow.db")
        monkeypatch.chdir(folder)
        monkeypatch.setenv("HETFEAT_HOME", str(folder / "home"))
        mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
        yield folder
        mlflow.set_tracking_uri(None)
