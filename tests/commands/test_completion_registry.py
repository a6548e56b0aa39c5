"""What the Tab key offers of the registry: quickly, and silently nothing where that fails."""

import base64
import json
import os
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
import pytest

from registry.cli import completion
from registry.cli.params import DEVICE_NAME
from registry.models.mlflow_client import connect

SOURCE, LAPTOP, BUNDLE = "costmodel.cpu-x86", "costmodel.cpu-x86.laptop", "network.resnet18.here"
COMPLETES = """
import atexit, sys
atexit.register(lambda: print("IMPORTED", *{name.partition(".")[0] for name in sys.modules}))
import mlproject
mlproject.main()
"""


@pytest.fixture(scope="module")
def registry_folder(new_registry, tmp_path_factory) -> Path:
    """A folder with a registry where commands look for one by default."""
    folder = tmp_path_factory.mktemp("a registry")
    client = connect(new_registry(folder))
    for name in (SOURCE, LAPTOP, BUNDLE, f"lock--{SOURCE}", "not ours"):
        client.create_registered_model(name)
    for _ in range(2):
        client.create_model_version(SOURCE, "file:///nowhere", await_creation_for=0)
    return folder


def completed(folder: Path, words: str, **variables: str) -> tuple[list[str], set[str]]:
    """What is offered in place of the last word, and the modules that were imported for it."""
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    kept = {name: of for name, of in os.environ.items() if not name.startswith("MLFLOW_")}
    done = subprocess.run(
        [sys.executable, "-c", COMPLETES],
        cwd=folder,
        env=kept | asked | {"_HETFEAT_COMPLETE": "bash_complete", **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    *lines, imported = done.stdout.splitlines()
    offered = [line.partition(",")[2] for line in lines if line.startswith("plain,")]
    return offered, set(imported.split()[1:])


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("hetfeat versions cost", [SOURCE, LAPTOP]),
        ("hetfeat doctor netw", [BUNDLE]),
        (f"hetfeat promote {SOURCE} ", ["2", "1"]),
        ("hetfeat promote nothing ", []),
        ("hetfeat deploy vgg16 --model costmodel.cpu-x86.", [LAPTOP]),
        (f"hetfeat lineage {SOURCE}", [SOURCE, LAPTOP, f"{SOURCE}/2", f"{SOURCE}/1"]),
        (f"hetfeat compare {SOURCE}/1 {SOURCE}/2", [f"{SOURCE}/2"]),
        # As bash breaks words; it has the text before the last break already.
        ("hetfeat pull models : /netw", [f"/{BUNDLE}"]),
        ("hetfeat pull models :", [f"/{name}" for name in (SOURCE, LAPTOP, BUNDLE)]),
        (f"hetfeat evaluate --model {SOURCE} @ pro", ["production"]),
        (f"hetfeat evaluate --model models : /{SOURCE}/", [f"/{SOURCE}/2", f"/{SOURCE}/1"]),
    ],
)
def test_models_and_versions(registry_folder, words, offered):
    found, imported = completed(registry_folder, words)
    assert found == offered
    assert not {"mlflow", "sqlalchemy", "torch"} & imported


@pytest.mark.parametrize(
    "uri",
    ["sqlite:///not-there.db", "postgresql://nowhere/x", "http://127.0.0.1:9", "http://[", "x"],
)
def test_a_registry_that_is_not_there_is_silence(tmp_path, uri):
    assert completed(tmp_path, "hetfeat versions c", MLFLOW_TRACKING_URI=uri)[0] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.services
def test_a_database_of_postgresql_is_read(tmp_path):
    if (uri := os.environ.get("HETFEAT_TEST_DATABASE")) is None:
        pytest.skip("no servers; `make services` starts them, `make test-services` uses them")
    client, name = connect(uri), f"costmodel.cpu-x86.{uuid.uuid4().hex[:8]}"
    client.create_registered_model(name)
    for _ in range(2):
        client.create_model_version(name, "file:///nowhere", await_creation_for=0)
    found, imported = completed(tmp_path, f"hetfeat lineage {name}", MLFLOW_TRACKING_URI=uri)
    assert found == [name, f"{name}/2", f"{name}/1"]
    assert not {"mlflow", "sqlalchemy", "torch"} & imported


class Answers:
    """A server of MLflow's REST API that answers as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self.answer: Callable[[BaseHTTPRequestHandler], None] = lambda handler: None
        answers = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answers.asked.append((self.path, self.headers["Authorization"]))
                answers.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def server() -> Iterator[Answers]:
    answers = Answers()
    yield answers
    answers.server.shutdown()
    answers.server.server_close()


def reply(content: object, status: int = 200, **headers: str):
    def answer(handler: BaseHTTPRequestHandler) -> None:
        body = json.dumps(content).encode()
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.mark.clock
def test_a_server_is_asked_as_the_user_of_its_variables(server, tmp_path):
    server.answer = reply({"registered_models": [{"name": SOURCE}, {"name": "\x1b[2J"}]})
    user = {"MLFLOW_TRACKING_USERNAME": "alice", "MLFLOW_TRACKING_PASSWORD": "secret"}
    found, imported = completed(
        tmp_path, "hetfeat versions cost", MLFLOW_TRACKING_URI=server.uri, **user
    )
    assert found == [SOURCE] and "mlflow" not in imported
    ((path, authorization),) = server.asked
    assert path.startswith("/api/2.0/mlflow/registered-models/search?")
    assert authorization == f"Basic {base64.b64encode(b'alice:secret').decode()}"


@pytest.mark.clock
def test_versions_of_a_server(server, tmp_path):
    server.answer = reply({"model_versions": [{"version": "9"}, {"version": "10"}]})
    words = f"hetfeat promote {SOURCE} "
    assert completed(tmp_path, words, MLFLOW_TRACKING_URI=server.uri)[0] == ["10", "9"]
    assert f"filter=name%3D%27{SOURCE}%27" in server.asked[0][0]


@pytest.mark.parametrize(
    "answer",
    [
        reply({}),
        reply([]),
        reply({"registered_models": [{"name": 3}]}),
        reply({"registered_models": "x"}),
        reply({"error_code": "PERMISSION_DENIED"}, status=403),
    ],
)
def test_a_server_that_says_something_else_is_silence(server, tmp_path, answer):
    server.answer = answer
    found, _ = completed(tmp_path, "hetfeat versions c", MLFLOW_TRACKING_URI=server.uri)
    assert found == []


def test_a_password_follows_no_redirect(server, tmp_path):
    elsewhere = f"{server.uri}/elsewhere"
    server.answer = reply({"registered_models": [{"name": SOURCE}]}, 302, Location=elsewhere)
    words = "hetfeat versions c"
    assert completed(tmp_path, words, MLFLOW_TRACKING_URI=server.uri)[0] == []
    assert not any(path == "/elsewhere" for path, _ in server.asked)


def test_a_server_that_never_answers_keeps_nobody_waiting(server, tmp_path):
    ended = threading.Event()
    server.answer = lambda handler: ended.wait()
    found, _ = completed(tmp_path, "hetfeat versions c", MLFLOW_TRACKING_URI=server.uri)
    ended.set()
    assert found == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_itself_completes_a_uri(registry_folder):
    script = f"""
        hetfeat() {{ "{sys.executable}" -m mlproject "$@"; }}
        env() {{ command env "${{@:1:$#-1}}" "{sys.executable}" -m mlproject; }}
        eval "$(_HETFEAT_COMPLETE=bash_source hetfeat)"
        COMP_WORDS=(hetfeat lineage models : /{SOURCE}/) COMP_CWORD=4
        _hetfeat_completion hetfeat
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    kept = {name: of for name, of in os.environ.items() if not name.startswith("MLFLOW_")}
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=registry_folder,
        env=kept,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == [f"/{SOURCE}/2", f"/{SOURCE}/1"], done.stderr


def test_the_networks_are_those_that_can_be_loaded():
    from hetfeat.workloads.networks import _torchvision
    from hetfeat.workloads.transformers import BERTS

    models = _torchvision().models
    offered = set(completion.networks(click.Context(click.Command("x")), ""))
    assert tuple(BERTS) == completion.BERTS
    assert offered == {*models.list_models(module=models), *BERTS}


def test_the_tab_key_measures_no_machine(monkeypatch):
    monkeypatch.setattr("hetfeat.devices.probe.find_profile", None)
    context = click.Context(click.Command("x"), resilient_parsing=True)
    assert DEVICE_NAME.convert("local", None, context) == "local"
