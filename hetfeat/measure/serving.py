"""The child's side of `worker.Worker`: a loop that answers requests."""

import json
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from hetfeat.devices.death import die_with_parent


def serve(
    connection: Connection, service: object, error_kind: Callable[[str, Exception], str]
) -> None:
    """Answers requests until the other side closes or is gone.

    Args:
        connection: To the parent; requests and replies are JSON objects.
        service: A request's `do` names its method, the rest are its arguments.
        error_kind: What to call the failure of a request.
    """
    die_with_parent()
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
