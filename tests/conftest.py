import contextlib
import ctypes
import faulthandler
import functools
import importlib.util
import logging
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hetfeat.devices.profile import DeviceProfile, save_profile

TESTS = Path(__file__).resolve().parent

# TVM's threads yield 300,000 times before they sleep, and no process ends before they do: 70 s
# beside fifteen others at work. Here, before TVM is loaded, and for children, too.
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")

# TVM's handler of crashes writes where pytest hides it. Loaded here, it comes before pytest's own.
if tvm_ffi := importlib.util.find_spec("tvm_ffi"):
    ctypes.CDLL(str(Path(tvm_ffi.origin).with_name("lib") / "libtvm_ffi.so"))

# In a shell's background a process and its children ignore interrupts; tests send them some.
signal.signal(signal.SIGINT, signal.default_int_handler)


CRASHES = pytest.StashKey[Path]()
"""Folder where each worker of pytest-xdist writes the stack of its crash."""


@pytest.hookimpl(trylast=True)  # after pytest's own handler of crashes, which this replaces
def pytest_configure(config: pytest.Config) -> None:
    """Each worker of pytest-xdist has its own folder of temporary files.

    The lock of who measures lies there: it would let one worker measure and keep the others
    waiting. What compares times is marked `clock` and runs in one process.
    """
    folder = Path(tempfile.mkdtemp(prefix="hetfeat-tests-"))
    config.add_cleanup(functools.partial(shutil.rmtree, folder, ignore_errors=True))
    if hasattr(config, "workerinput"):
        faulthandler.enable(os.open(config.workerinput["crash"], os.O_CREAT | os.O_WRONLY))
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    else:
        config.stash[CRASHES] = folder


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["crash"] = str(node.config.stash[CRASHES] / node.gateway.id)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows where workers crashed at the end: the end is what is kept of a long run's output."""
    for crash in sorted(terminalreporter.config.stash[CRASHES].iterdir()):
        if stack := crash.read_text():
            terminalreporter.section(f"crash of worker {crash.name}")
            terminalreporter.write_line(stack)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests measure come first: a long one at the end would leave a worker idle."""
    measuring = {item.path for item in items if item.get_closest_marker("tvm")}
    items.sort(key=lambda item: item.path not in measuring)


@pytest.fixture(autouse=True)
def no_store_of_another_test() -> Iterator[None]:
    """MLflow remembers the store and the experiment it used last, and prefers them to variables."""
    yield
    if "mlflow" in sys.modules:
        import mlflow

        mlflow.set_tracking_uri(None)
        mlflow.tracking.fluent._active_experiment_id = None
        os.environ.pop("MLFLOW_EXPERIMENT_ID", None)


@pytest.fixture(autouse=True)
def no_log_of_another_test() -> None:
    """A command that ran in this process, perhaps for a whole module's tests, left its handlers."""
    for logger in map(logging.getLogger, ("hetfeat", "registry")):
        logger.setLevel(logging.NOTSET)
        logger.handlers.clear()


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the clone."""
    return TESTS.parent


@pytest.fixture(scope="session")
def device() -> DeviceProfile:
    """This machine with made-up figures: probing it takes ten seconds."""
    from hetfeat.devices.target import host_target, vector_isa

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
def new_registry(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """Makes an empty registry on SQLite in a folder, and returns its URI.

    A copy of one that was migrated once, which takes seconds; its artifacts stay in the folder.
    """
    from registry.models.mlflow_client import connect

    template = tmp_path_factory.mktemp("mlflow") / "empty.db"
    connect(f"sqlite:///{template}").search_registered_models()

    def make(folder: Path) -> str:
        database = folder / "mlflow.db"
        shutil.copy(template, database)
        with contextlib.closing(sqlite3.connect(database)) as connection, connection:
            connection.execute(
                "UPDATE experiments SET artifact_location = ? || experiment_id",
                (f"{folder / 'mlruns'}/",),
            )
        return f"sqlite:///{database}"

    return make


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with records and a registry in which a model of them is in production; to copy."""
    import trained

    base = tmp_path_factory.getbasetemp()
    # pytest-xdist's workers have a folder each within the run's.
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return trained.made_once(run / "trained")


@pytest.fixture
def registry_here(
    new_registry: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The working folder, with a registry of its own as a command finds it by default.

    In memory where there is a tmpfs: MLflow's many small transactions each wait for the disk.
    """
    import mlflow

    for variable in [name for name in os.environ if name.startswith("MLFLOW_")]:
        monkeypatch.delenv(variable)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        folder = Path(name)
        uri = new_registry(folder)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("HETFEAT_HOME", str(folder / "home"))
        mlflow.set_tracking_uri(uri)
        yield folder
