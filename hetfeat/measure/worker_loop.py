"""The child's side of `worker.Worker`: a loop that answers requests."""

import json
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, get_args

from hetfeat.devices.death import die_with_parent
from hetfeat.records import ErrorKind


def serve(
    connection: Connection, service: object, error_kind: Callable[[str, Exception], str]
) -> None:
    """Answers requests until the other side closes or is gone.

    Args:
        connection: Connection to the parent; requests and replies are JSON objects.
        service: Object with the methods that a request's `do` names; the rest of it are the
            arguments.
        error_kind: Callable that names the failure of a request.
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


def received(connection: Connection, max_bytes: int = 1 << 28) -> dict[str, Any]:
    """A reply of `serve`: an object with a `value`, or with an `error` and a `message`.

    Args:
        connection: Connection to the child.
        max_bytes: Most bytes of a reply, default 256 MiB.

    Raises:
        EOFError: Something else, or nothing: the child is as good as gone.
        OSError: The connection broke, or the reply is longer than that.
    """
    try:
        reply = json.loads(connection.recv_bytes(max_bytes))
    except (ValueError, RecursionError) as error:
        raise EOFError("a reply that is no JSON") from error
    is_failure = isinstance(reply, dict) and reply.get("error") in get_args(ErrorKind)
    if is_failure and isinstance(reply.get("message"), str):
        return dict(reply)
    if not isinstance(reply, dict) or set(reply) != {"value"}:
        raise EOFError("a reply of another kind")
    return reply
