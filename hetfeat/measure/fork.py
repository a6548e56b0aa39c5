"""A fork of a measuring child that runs programs: killing it loses nothing that was built."""

import os
import signal
from multiprocessing import Pipe
from typing import TypeVar

from hetfeat.measure.messages import Handlers, Message
from hetfeat.measure.worker_loop import KindOf, receive, serve

R = TypeVar("R")


class Fork:
    """A copy of this process that serves requests; it knows what this one knew when it was made.

    This process must have no threads that the copy would need: TVM's, say, which the first
    parallel loop starts.

    Args:
        handlers: What the copy does for each message, as for `serve`.
        kind_of: Callable that names the failure of a request.
    """

    def __init__(self, handlers: Handlers, kind_of: KindOf) -> None:
        self._connection, theirs = Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._connection.close()  # or it would never see that this process is gone
                serve(theirs, handlers, kind_of)
            finally:
                os._exit(0)
        theirs.close()

    def ask(self, timeout_s: float | None, request: Message[R]) -> R:
        """What a request comes to.

        Raises:
            TimeoutError: It takes longer.
            EOFError, ConnectionError: The copy died.
            RequestFailed: The request failed there.
        """
        self._connection.send_bytes(request.model_dump_json().encode())
        if not self._connection.poll(timeout_s):
            raise TimeoutError(f"{request.do} takes over {timeout_s} s")
        return receive(self._connection, request)

    def end(self) -> None:
        """Kills the copy."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._connection.close()
