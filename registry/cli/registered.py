"""Names and versions of the registry for the Tab key: read without MLflow, which takes seconds.

A database of SQLite is read as a file, a server is asked over MLflow's REST API. Both answers are
others' words: what cannot be a name of ours is left out.
"""

import base64
import contextlib
import os
import queue
import sqlite3
import threading
import urllib.parse
import urllib.request
from typing import Any

from registry.models.names import is_model_name

DEFAULT_URI = "sqlite:///mlflow.db"
_SQLITE = "sqlite:///"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The password goes to the server that was configured, and to no other."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """No request: the redirect is the error that it came as."""


def registered_names() -> list[str]:
    """Names of registered models, sorted, without our locks.

    Raises:
        Exception: The registry is none of the two kinds, or does not answer at once.
    """
    uri = _uri()
    if uri.startswith(_SQLITE):
        found = _column(uri, "SELECT DISTINCT name FROM registered_models")
    else:
        found = _asked(uri, "registered-models", "name")
    return sorted(name for name in found if is_model_name(name))


def version_numbers(name: str) -> list[int]:
    """Numbers of a registered model's versions, the newest first.

    Raises:
        Exception: The registry is none of the two kinds, or does not answer at once.
    """
    uri = _uri()
    if not is_model_name(name):
        return []
    if uri.startswith(_SQLITE):
        found = _column(uri, "SELECT DISTINCT version FROM model_versions WHERE name = ?", name)
    else:
        found = _asked(uri, "model-versions", "version", filter=f"name='{name}'")
    return sorted(map(int, found), reverse=True)


def _uri() -> str:
    variables = ("MLFLOW_REGISTRY_URI", "MLFLOW_TRACKING_URI")
    return next(filter(None, map(os.environ.get, variables)), DEFAULT_URI)


def _column(uri: str, query: str, *values: str, busy_s: float = 0.2) -> list[Any]:
    """The one column of a query; the database is never made and never written."""
    path = urllib.parse.quote(uri.removeprefix(_SQLITE).partition("?")[0])
    opened = sqlite3.connect(f"file:{path}?mode=ro", timeout=busy_s, uri=True)
    with contextlib.closing(opened) as connection:
        return [value for (value,) in connection.execute(query, values)]


def _asked(uri: str, what: str, field: str, *, timeout_s: float = 0.7, **query: str) -> list[Any]:
    """A field of what a server finds at once of some kind."""
    from hetfeat.parsing import MAX_BYTES, Json, decode

    if not uri.startswith(("http://", "https://")):
        raise ValueError(f"{uri} is no address of a server")
    words = urllib.parse.urlencode({**query, "max_results": "500"})
    address = f"{uri.rstrip('/')}/api/2.0/mlflow/{what}/search?{words}"
    replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    request = urllib.request.Request(address, headers=_credentials())
    opener = urllib.request.build_opener(_NoRedirect)

    def ask() -> None:
        with contextlib.suppress(Exception), opener.open(request, timeout=timeout_s) as reply:
            replies.put(reply.read(MAX_BYTES))

    # A socket's timeout is of each step alone, and none is of the look-up of the host's name.
    threading.Thread(target=ask, daemon=True).start()
    text = replies.get(timeout=timeout_s)
    found: Any = decode(text, Json, what="a reply", action="")
    return [row[field] for row in found.get(what.replace("-", "_"), [])]


def _credentials() -> dict[str, str]:
    """What MLflow's own client would send."""
    user = os.environ.get("MLFLOW_TRACKING_USERNAME")
    password = os.environ.get("MLFLOW_TRACKING_PASSWORD")
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    if user and password:
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    return {"Authorization": f"Bearer {token}"} if token else {}
