"""The child's side of `worker.Worker`: a loop that answers requests."""

from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from hetfeat.devices.death import die_with_parent
from hetfeat.errors import DataError
from hetfeat.measure.messages import (
    MAX_MESSAGE_BYTES,
    Done,
    Failed,
    Handlers,
    Hello,
    Message,
    any_of,
    decode_message,
    decode_reply,
)
from hetfeat.records import ErrorKind

R = TypeVar("R")

KindOf = Callable[[Message[Any] | None, Exception], ErrorKind]
"""Names the failure of a request, None for one that was no message."""


def serve(connection: Connection, handlers: Handlers, kind_of: KindOf) -> None:
    """Answers requests until the other side closes or is gone.

    Args:
        connection: Connection to the parent.
        handlers: What is done for each message; `Hello` is answered anyway.
        kind_of: Callable that names the failure of a request.
    """
    die_with_parent()
    handlers = {Hello: lambda hello: None, **handlers}
    kinds = any_of(handlers)
    while True:
        try:
            data = connection.recv_bytes()
        except EOFError:
            return
        connection.send_bytes(_reply(data, kinds, handlers, kind_of))


def _reply(data: bytes, kinds: Any, handlers: Handlers, kind_of: KindOf) -> bytes:
    request: Message[Any] | None = None
    try:
        request = decode_message(data, kinds)
        value = handlers[type(request)](request)
        return Done[Any](value=value).model_dump_json().encode()
    except Exception as error:
        words = str(error)[-2000:].encode(errors="replace").decode()
        failed = Failed(error=kind_of(request, error), message=words)
        return failed.model_dump_json().encode()


def receive(connection: Connection, request: Message[R]) -> R:
    """The value of a child's reply to a request.

    Args:
        connection: Connection to the child.
        request: Request that was sent, whose type says what the value is.

    Raises:
        RequestFailed: The reply tells of a failure.
        EOFError: No reply to that request, or nothing: the child is as good as gone.
        OSError: The connection broke, or the reply is longer than any can be.
    """
    data = connection.recv_bytes(MAX_MESSAGE_BYTES)
    try:
        return decode_reply(data, request)
    except DataError as error:
        raise EOFError(str(error)) from error
