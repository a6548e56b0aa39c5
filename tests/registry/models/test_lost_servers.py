"""Real servers, stores and disks that fail in mid-work: a sentence, and the registry as it was."""

import contextlib
import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import mlflow
import pytest
import stores
from server import LostServer, mlflow_server

import mlproject
from hetfeat.errors import HetfeatError, WorkFailed
from registry.cli import app
from registry.files.manifest import write_manifest
from registry.files.moves import promote
from registry.files.pull import pull
from registry.maintenance.audit import diagnose
from registry.maintenance.repair import repair
from registry.models import aliases, lock
from registry.models.aliases import State
from registry.models.mlflow_client import connect
from registry.models.stages import history
from registry.models.version import Version
from registry.models.versions import model_names, register, resolve
from registry.tracking import command_run

on_the_server = pytest.mark.parametrize(
    "tracking_uri", [pytest.param("server", marks=pytest.mark.services)], indirect=True
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder whose commands go where MLFLOW_TRACKING_URI says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HETFEAT_HOME", str(tmp_path / "home"))
    # An experiment that an earlier run of the tests left on the server is not this user's.
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", f"made-{uuid.uuid4().hex[:8]}")
    return tmp_path


def go_through(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    mlflow.set_tracking_uri(uri)


def upload(name: str, folder: Path) -> Version:
    """As the commands do it that train or deploy: in a run, the version last."""
    folder.mkdir(exist_ok=True)
    (folder / "model.ubj").write_bytes(b"{" + os.urandom(4 << 20))
    with command_run.tracked_run("upload", {}) as run:
        digest = write_manifest(folder)
        mlflow.log_artifacts(str(folder), "model")
        uri = f"runs:/{run.info.run_id}/model"
        return register(name, uri, folder_manifest_sha256=digest, tags={}, run_id=run.info.run_id)


def fails(work: Callable[[], object], kind: type[HetfeatError], said: str) -> None:
    with pytest.raises(kind, match=said) as caught:
        work()
    assert "\n" not in str(caught.value)


@on_the_server
@pytest.mark.slow
def test_a_server_lost_while_training_uploads(tracking_uri, server, here, monkeypatch, capfd):
    server.act_as("admin", monkeypatch)  # whoever trained first owns the family's model
    stores.make_store(here / "records")
    lost = LostServer(tracking_uri, b"PUT /api/2.0/mlflow-artifacts")
    go_through(lost.uri, monkeypatch)
    family = f"--family=cpu-x86 --records={here / 'records'} --effort=quick".split()
    versions = connect(tracking_uri).search_model_versions("name = 'costmodel.cpu-x86'")
    assert app.run(mlproject.cli, ["train", *family, "--json"]) == 1
    printed = capfd.readouterr()
    assert lost.lost.is_set() and printed.out == ""
    assert "Traceback" not in printed.err
    assert "log 'train xgb" in printed.err.splitlines()[-1]
    go_through(tracking_uri, monkeypatch)
    assert connect().search_model_versions("name = 'costmodel.cpu-x86'") == versions
    assert app.run(mlproject.cli, ["train", *family, "--json"]) == 0
    trained = json.loads(capfd.readouterr().out)
    assert resolve(f"models:/{trained['model']}/{trained['version']}").run_id == trained["run_id"]


@on_the_server
def test_a_server_lost_in_mid_upload(tracking_uri, here, monkeypatch, model_name):
    lost = LostServer(tracking_uri, b"PUT /api/2.0/mlflow-artifacts")
    go_through(lost.uri, monkeypatch)
    fails(lambda: upload(model_name, here / "model"), WorkFailed, "repeat the command")
    go_through(tracking_uri, monkeypatch)
    assert lost.lost.is_set() and model_name not in model_names(connect())
    assert upload(model_name, here / "model").version == 1


@on_the_server
@pytest.mark.parametrize(
    "step",
    [
        b"POST /api/2.0/mlflow/registered-models/set-tag",
        b"POST /api/2.0/mlflow/registered-models/alias",
        b"POST /api/2.0/mlflow/model-versions/transition-stage",
        b"DELETE /api/2.0/mlflow/registered-models/delete-tag",
    ],
)
def test_a_server_lost_in_mid_promotion(tracking_uri, make_version, model_name, monkeypatch, step):
    for _ in range(2):
        make_version(model_name)
    promote(model_name, 1, "production", gates=lambda *_: [])
    lost = LostServer(tracking_uri, step)
    fails(
        lambda: promote(model_name, 2, "production", gates=lambda *_: [], client=connect(lost.uri)),
        WorkFailed,
        "repeat the command",
    )
    assert lost.lost.is_set()
    client = connect(tracking_uri)
    # The lock's owner is this very process: for the doctor it must be gone.
    monkeypatch.setattr("registry.models.process.is_gone", lambda owner: True)
    found = diagnose(client, [model_name], settle_s=0.0)
    assert {finding.code for finding in found} <= {"lock", "unfinished"} and found
    assert repair(client, found, settle_s=0.0) == []
    entries, faults = history(model_name, client=client)
    state = State(production=2, previous=1) if len(entries) == 2 else State(production=1)
    assert faults == []
    assert aliases.differences(client, model_name, state) == []
    assert lock.locks_of(client, model_name) == []
    promote(model_name, 2, "production", gates=lambda *_: [])


@on_the_server
def test_an_expired_token(tracking_uri, make_version, model_name, here, monkeypatch):
    make_version(model_name)
    for variable in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "expired")
    for work in (
        lambda: promote(model_name, 1, "production"),
        lambda: pull(f"{model_name}/1"),
        lambda: history(model_name),
        lambda: upload(model_name, here / "model"),
    ):
        fails(work, HetfeatError, "MLFLOW_TRACKING_TOKEN")


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A disk of one MiB; skips where nothing can be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nothing can be mounted here; root may")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(params=["full disk", "wrong credentials", "no store"])
def failing_store(request, services, here, new_registry, monkeypatch) -> Iterator[str]:
    """A real server whose artifacts go where nothing can be kept."""
    # A server that refused an upload may hang up, which the first request after it finds out.
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    variables = {"AWS_MAX_ATTEMPTS": "1"}
    with contextlib.ExitStack() as until_the_end:
        if request.param == "full disk":
            destination = str(here / "small")
            until_the_end.enter_context(small_disk(here / "small"))
        else:
            destination = "s3://mlflow/artifacts"
            variables |= (
                {"AWS_SECRET_ACCESS_KEY": "changed meanwhile"}
                if request.param == "wrong credentials"
                else {"MLFLOW_S3_ENDPOINT_URL": "http://127.0.0.1:9"}
            )
        database = new_registry(here)
        # The copy's own experiment keeps its artifacts in a folder; a new one asks the server.
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "uploads")
        uri = until_the_end.enter_context(mlflow_server(here, database, destination, variables))
        go_through(uri, monkeypatch)
        yield uri


@pytest.mark.services
def test_a_store_that_keeps_nothing(failing_store, model_name, here):
    fails(lambda: upload(model_name, here / "model"), WorkFailed, "log 'upload'.*repeat")
    assert model_names(connect()) == []
    (run,) = connect().search_runs([connect().get_experiment_by_name("uploads").experiment_id])
    assert run.info.status == "FAILED"
