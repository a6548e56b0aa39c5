import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from server import Server

from registry.files.manifest import write_manifest
from registry.models.mlflow_client import connect
from registry.models.version import EVALUATION_TAG, Version
from registry.models.versions import metric_tags, register

FIGURES = {"pca": 0.90, "rmse": 0.1, "r2": 0.8, "top1": 0.7, "top5": 0.9}


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where there is a tmpfs: MLflow's many small transactions each wait for the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(params=["sqlite", pytest.param("server", marks=pytest.mark.services)])
def tracking_uri(
    request: pytest.FixtureRequest,
    new_registry: Callable[[Path], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """A registry of its own for each test on SQLite, or the one that `make services` started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HETFEAT_HOME", str(tmp_path / "home"))
    if request.param == "sqlite":
        uri = new_registry(tmp_path)
    else:
        uri = request.getfixturevalue("server").uri
        request.getfixturevalue("server").act_as("alice", monkeypatch)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


on_sqlite_only = pytest.mark.parametrize("tracking_uri", ["sqlite"], indirect=True)
"""For what looks into the store's own folder, or needs a registry that is empty."""


@pytest.fixture(scope="session")
def services() -> dict[str, str]:
    """What `make services` wrote down, as the tests were started with it."""
    if "HETFEAT_TEST_SERVER" not in os.environ:
        pytest.skip("no servers; `make services` starts them, `make test-services` uses them")
    return dict(os.environ)


@pytest.fixture(scope="session")
def server(services: dict[str, str]) -> Server:
    """The MLflow server of `make services`, with users of our own on it."""
    return Server(services["HETFEAT_TEST_SERVER"])


@pytest.fixture
def client(tracking_uri: str):
    return connect(tracking_uri)


@pytest.fixture
def model_name() -> str:
    """A name that no other test uses: servers are shared."""
    return f"costmodel.cpu-x86.{uuid.uuid4().hex[:8]}"


@pytest.fixture
def make_version(client, tmp_path: Path) -> Callable[..., Version]:
    """Registers a version whose artifacts are a small folder with a manifest."""
    experiment = client.create_experiment(f"made-{uuid.uuid4().hex[:8]}")

    def make(name: str, files: dict[str, bytes] | None = None, parent: str | None = None, **tags):
        folder = tmp_path / f"folder-{uuid.uuid4().hex[:8]}"
        for path, content in (files or {"model.ubj": b"{" + uuid.uuid4().bytes}).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        digest = write_manifest(folder)
        run = client.create_run(experiment)
        client.log_artifacts(run.info.run_id, str(folder), "model")
        client.set_terminated(run.info.run_id)
        return register(
            name,
            f"runs:/{run.info.run_id}/model",
            folder_manifest_sha256=digest,
            tags={EVALUATION_TAG: "e1", **metric_tags(FIGURES), **tags},
            parent_uri=parent,
            run_id=run.info.run_id,
            client=client,
        )

    return make
