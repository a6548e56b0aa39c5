"""MLflow servers: the one of `make services`, with its users, and ones of a test's own."""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests


class Server:
    """Makes users as they are first needed; nobody but the administrator may do more than READ."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.passwords = {"admin": os.environ["HETFEAT_TEST_ADMIN_PASSWORD"]}
        self.suffix = secrets.token_hex(4)

    def act_as(self, user: str, monkeypatch: pytest.MonkeyPatch) -> str:
        """Makes this process that user, and returns the name that the user has."""
        name = user if user == "admin" else f"{user}-{self.suffix}"
        if user not in self.passwords:
            self.passwords[user] = secrets.token_urlsafe(16)
            with monkeypatch.context() as patched:
                self.act_as("admin", patched)
                self._post("2.0/mlflow/users/create", username=name, password=self.passwords[user])
        monkeypatch.setenv("MLFLOW_TRACKING_URI", self.uri)
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", name)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", self.passwords[user])
        return name

    def grant(
        self, user: str, model: str, permission: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Gives a user a permission on a registered model."""
        with monkeypatch.context() as patched:
            self.act_as("admin", patched)
            self._post(
                "3.0/mlflow/users/permissions/grant",
                username=f"{user}-{self.suffix}",
                resource_type="registered_model",
                resource_id=model,
                permission=permission,
            )

    def _post(self, what: str, **content: str) -> None:
        user, password = (
            os.environ[f"MLFLOW_TRACKING_{name}"] for name in ("USERNAME", "PASSWORD")
        )
        url = f"{self.uri}/api/{what}"
        answer = requests.post(url, json=content, auth=(user, password), timeout=30)
        assert answer.ok, answer.text


@contextlib.contextmanager
def mlflow_server(
    folder: Path, database: str, destination: str, variables: dict[str, str]
) -> Iterator[str]:
    """A server without users, for the length of the block; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--backend-store-uri", database, "--artifacts-destination", destination]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_TRACKING_")}
    environment = inherited | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"} | variables
    log = folder / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=output, stderr=output
        )
    try:
        uri = f"http://127.0.0.1:{port}"
        _wait_for(f"{uri}/health", server, log)
        yield uri
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_for(url: str, server: subprocess.Popen, log: Path) -> None:
    for _ in range(1200):
        assert server.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail(log.read_text())


class LostServer:
    """Passes connections on to a server until a request of some kind begins, then no more.

    Args:
        uri: Of the server.
        last_words: What the request begins with that is cut off in its middle.
    """

    def __init__(self, uri: str, last_words: bytes) -> None:
        there = urlsplit(uri)
        self.there, self.last_words = (there.hostname, there.port), last_words
        self.lost = threading.Event()
        self._connections: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.uri = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self) -> None:
        self.lost.set()
        for each in [self._listening, *self._connections]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self.there)
                self._connections += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                if data.startswith(self.last_words):
                    target.sendall(data[: len(data) // 2])
                    self.lose()
                    return
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
