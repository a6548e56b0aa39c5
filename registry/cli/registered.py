"""Names and versions of the registry for the Tab key: read without MLflow, which takes seconds.

A database of SQLite is read as a file, one of PostgreSQL through its driver, and a server is asked
over MLflow's REST API. Answers are others' words: what cannot be a name of ours is left out.
"""

import base64
import contextlib
import os
import queue
import re
import sqlite3
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from registry.models.names import is_model_name

Answer = TypeVar("Answer")

DEFAULT_URI = "sqlite:///mlflow.db"
_SQLITE = "sqlite:///"
_DATABASE = re.compile(r"(sqlite|postgresql)(\+\w+)?://")
"""Pattern of the address of a database that is read here."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The password goes to the server that was configured, and to no other."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """No request: the redirect is the error that it came as."""


def registered_names() -> list[str]:
    """Names of registered models, sorted, without our locks.

    Raises:
        Exception: The registry is none of the three kinds, or does not answer at once.
    """
    uri = _uri()
    if _DATABASE.match(uri):
        found = _column(uri, "SELECT DISTINCT name FROM registered_models")
    else:
        found = _asked(uri, "registered-models", "name")
    return sorted(name for name in found if is_model_name(name))


def version_numbers(name: str) -> list[int]:
    """Numbers of a registered model's versions, the newest first.

    Raises:
        Exception: The registry is none of the three kinds, or does not answer at once.
    """
    uri = _uri()
    if not is_model_name(name):
        return []
    if _DATABASE.match(uri):
        found = _column(uri, "SELECT DISTINCT version FROM model_versions WHERE name = %s", name)
    else:
        found = _asked(uri, "model-versions", "version", filter=f"name='{name}'")
    return sorted(map(int, found), reverse=True)


def _uri() -> str:
    variables = ("MLFLOW_REGISTRY_URI", "MLFLOW_TRACKING_URI")
    return next(filter(None, map(os.environ.get, variables)), DEFAULT_URI)


def _column(uri: str, query: str, *values: str) -> list[Any]:
    """The one column of a query; the database is never made and never written."""
    of = _of_sqlite if uri.startswith(_SQLITE) else _of_postgresql
    return _at_once(lambda: [value for (value,) in of(uri, query, values)])


def _of_sqlite(
    uri: str, query: str, values: Sequence[str], *, busy_s: float = 0.2
) -> list[tuple[Any]]:
    path = urllib.parse.quote(uri.removeprefix(_SQLITE).partition("?")[0])
    opened = sqlite3.connect(f"file:{path}?mode=ro", timeout=busy_s, uri=True)
    with contextlib.closing(opened) as connection:
        return connection.execute(query.replace("%s", "?"), values).fetchall()


def _of_postgresql(uri: str, query: str, values: Sequence[str]) -> list[tuple[Any]]:
    import psycopg2  # an extra, 40 ms

    with contextlib.closing(psycopg2.connect(_DATABASE.sub(r"\1://", uri))) as connection:
        connection.set_session(readonly=True)
        with connection.cursor() as cursor:
            cursor.execute(query, values)
            rows: list[tuple[Any]] = cursor.fetchall()
            return rows


def _asked(uri: str, what: str, field: str, *, timeout_s: float = 0.7, **query: str) -> list[Any]:
    """A field of what a server finds at once of some kind."""
    from hetfeat.parsing import MAX_BYTES, Json, decode

    if not uri.startswith(("http://", "https://")):
        raise ValueError(f"{uri} is no address of a server")
    words = urllib.parse.urlencode({**query, "max_results": "500"})
    address = f"{uri.rstrip('/')}/api/2.0/mlflow/{what}/search?{words}"
    request = urllib.request.Request(address, headers=_credentials())
    opener = urllib.request.build_opener(_NoRedirect)

    def reply() -> bytes:
        with opener.open(request, timeout=timeout_s) as opened:
            return bytes(opened.read(MAX_BYTES))

    found: Any = decode(_at_once(reply, timeout_s=timeout_s), Json, what="a reply", action="")
    return [row[field] for row in found.get(what.replace("-", "_"), [])]


def _at_once(ask: Callable[[], Answer], *, timeout_s: float = 0.7) -> Answer:
    """An answer that comes at once.

    A socket's timeout is of each step alone, and none is of the look-up of a host's name.

    Raises:
        queue.Empty: None came.
    """
    answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()

    def answer() -> None:
        with contextlib.suppress(Exception):
            answers.put(ask())

    threading.Thread(target=answer, daemon=True).start()
    return answers.get(timeout=timeout_s)


def _credentials() -> dict[str, str]:
    """What MLflow's own client would send."""
    user = os.environ.get("MLFLOW_TRACKING_USERNAME")
    password = os.environ.get("MLFLOW_TRACKING_PASSWORD")
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    if user and password:
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    return {"Authorization": f"Bearer {token}"} if token else {}
