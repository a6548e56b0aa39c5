import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetfeat.devices.profile import DeviceProfile, save_profile

TESTS = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the clone."""
    return TESTS.parent


@pytest.fixture(scope="session")
def device() -> DeviceProfile:
    """This machine with made-up figures: probing it takes ten seconds."""
    from hetfeat.devices.tvm import host_target, vector_isa

    target = host_target(2)
    return DeviceProfile(
        name="here",
        family="cpu-x86",
        target=target,
        threads=2,
        num_cores=2,
        vector_unit_bytes=vector_isa(target)[1],
        peak_gflops=100.0,
        bandwidth_gb_s=10.0,
    )


@pytest.fixture(scope="session")
def device_file(device: DeviceProfile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The profile of `device`, for `--device`."""
    path = tmp_path_factory.mktemp("device") / "here.yaml"
    save_profile(device, path)
    return path


@pytest.fixture(scope="session")
def child_environment(project: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables for processes: they find the package and the tests' modules, and no registry."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(project), str(TESTS)]),
        "HETFEAT_HOME": str(tmp_path_factory.mktemp("home")),
        "HETFEAT_QUIET": "1",
    }


@pytest.fixture(scope="session")
def hetfeat_command() -> list[str]:
    """What `hetfeat` is without the script."""
    return [sys.executable, "-m", "mlproject"]


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
