"""The child's side of `worker.Worker`: a loop that answers requests."""

import ctypes
import json
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


def serve(
    connection: Connection, service: object, error_kind: Callable[[str, Exception], str]
) -> None:
    """Answers requests until the other side closes or is gone.

    Args:
        connection: To the parent; requests and replies are JSON objects.
        service: A request's `do` names its method, the rest are its arguments.
        error_kind: What to call the failure of a request.
    """
    _die_with_parent()
    while True:
        try:
            request = json.loads(connection.recv_bytes())
        except EOFError:
            return
        name = request.pop("do")
        try:
            reply: dict[str, Any] = {"value": getattr(service, name)(**request)}
        except Exception as error:
            reply = {"error": error_kind(name, error), "message": str(error)[-2000:]}
        connection.send_bytes(json.dumps(reply).encode())


def _die_with_parent() -> None:
    """A parent that is killed must not leave a hanging program behind, on a core for ever."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
