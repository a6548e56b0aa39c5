"""A fork of a measuring child that runs programs: killing it loses nothing that was built."""

import json
import os
import signal
from collections.abc import Callable
from multiprocessing import Pipe
from typing import Any

from hetfeat.measure.worker_loop import received, serve


class Fork:
    """A copy of this process that serves requests; it knows what this one knew when it was made.

    This process must have no threads that the copy would need: TVM's, say, which the first
    parallel loop starts.

    Args:
        service: Object whose methods serve requests, as for `serve`.
        error_kind: Callable that names the failure of a request.
    """

    def __init__(self, service: object, error_kind: Callable[[str, Exception], str]) -> None:
        self._connection, theirs = Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._connection.close()  # or it would never see that this process is gone
                serve(theirs, service, error_kind)
            finally:
                os._exit(0)
        theirs.close()

    def ask(self, timeout_s: float | None, do: str, **arguments: Any) -> Any:
        """What a request comes to.

        Raises:
            TimeoutError: It takes longer.
            EOFError, ConnectionError: The copy died.
            RuntimeError: The request failed there.
        """
        self._connection.send_bytes(json.dumps({"do": do, **arguments}).encode())
        if not self._connection.poll(timeout_s):
            raise TimeoutError(f"{do} takes over {timeout_s} s")
        reply = received(self._connection)
        if "error" in reply:
            raise RuntimeError(reply["message"])
        return reply["value"]

    def end(self) -> None:
        """Kills the copy."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._connection.close()
