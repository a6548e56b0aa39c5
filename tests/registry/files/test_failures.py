"""What commands say when servers, disks and tokens fail; the registry stays as it was."""

import errno
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from conftest import on_sqlite_only

from hetfeat.errors import HetfeatError, RequestError, WorkFailed
from registry.files import cache
from registry.files.artifacts import Artifacts
from registry.files.manifest import write_manifest
from registry.files.moves import promote
from registry.files.pull import pull
from registry.models import aliases
from registry.models.aliases import State
from registry.models.mlflow_client import connect
from registry.models.versions import model_names, register, resolve


class Refusing(BaseHTTPRequestHandler):
    """Answers each request with the status that its server was made with."""

    def _answer(self) -> None:
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _answer

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def refusing(request, monkeypatch) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    server.status = request.param
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("refusing", "kind", "said"),
    [
        (401, RequestError, "MLFLOW_TRACKING_TOKEN"),  # as a proxy answers to an expired token
        (403, RequestError, "EDIT"),
        (500, WorkFailed, "repeat the command"),
        (503, WorkFailed, "repeat the command"),
    ],
    indirect=["refusing"],
)
def test_a_server_that_refuses_gets_a_sentence(refusing, kind, said):
    for command in (
        lambda client: promote("costmodel.cpu-x86", 1, "production", client=client),
        lambda client: resolve("costmodel.cpu-x86", "production", client=client),
        lambda client: pull("costmodel.cpu-x86/1", client=client),
    ):
        with pytest.raises(kind, match=said) as caught:
            command(connect(refusing))
        assert "\n" not in str(caught.value)


def test_a_server_that_is_not_there_gets_a_sentence(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(WorkFailed, match="MLFLOW_TRACKING_URI"):
        resolve("costmodel.cpu-x86", "production", client=connect("http://127.0.0.1:9"))


@pytest.fixture
def name(make_version, model_name) -> str:
    for _ in range(2):
        make_version(model_name)
    promote(model_name, 1, "production")
    return model_name


def full(*args: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@on_sqlite_only
def test_a_full_disk_while_pulling_leaves_nothing(client, name, monkeypatch):
    kept = sorted(cache.models_folder().iterdir())
    monkeypatch.setattr(Artifacts, "fetch", full)
    with pytest.raises(WorkFailed, match=r"No space left.*make room"):
        pull(f"{name}/2")
    assert sorted(cache.models_folder().iterdir()) == kept
    with pytest.raises(WorkFailed, match="No space left"):
        promote(name, 2, "production")
    assert aliases.read(client, name).aliases == State(production=1)


@on_sqlite_only
def test_a_store_that_refuses_leaves_the_registry_as_it_was(client, tmp_path, model_name):
    """An upload that fails never becomes a version: registering is the last step."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.ubj").write_bytes(b"{")
    digest = write_manifest(folder)
    (tmp_path / "store").write_text("a file where a folder should be")
    experiment = client.create_experiment("refusing", f"file://{tmp_path}/store")
    run = client.create_run(experiment).info.run_id
    with pytest.raises(OSError):
        client.log_artifacts(run, str(folder), "model")
    assert model_names(client) == []
    version = register(
        model_name, f"runs:/{run}/model", folder_manifest_sha256=digest, tags={}, run_id=run
    )
    with pytest.raises(HetfeatError) as caught:
        promote(model_name, version.version, "production")
    assert "\n" not in str(caught.value)
    assert aliases.read(client, model_name).aliases == State()
