"""A persistent child process that answers requests, and is killed when it does not.

The stock builder starts a process a batch, whose import alone takes longer than building the
batch (docs/decisions.md). This child imports once; what brings it down costs one request and a
restart of about a second.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from hetfeat.errors import WorkFailed
from hetfeat.records import ErrorKind

START_TIMEOUT_S = 120.0


class Lost(Exception):
    """The worker died or was killed for silence; its state is gone.

    Attributes:
        kind: `timeout` or `crash`.
    """

    def __init__(self, kind: ErrorKind) -> None:
        super().__init__(kind)
        self.kind: ErrorKind = kind


class Worker:
    """One child process running a module's `serve(connection)` loop.

    Requests and replies are JSON objects; a reply with the key `error` is the child's report of
    a failed request, after which the child goes on.

    Args:
        module: Name of the module run as the child's main program.
        arguments: Its arguments, after the number of the file descriptor to talk over.
        threads: `TVM_NUM_THREADS` of the child. TVM would take half the cores.
    """

    def __init__(self, module: str, arguments: Sequence[str], threads: int) -> None:
        self._command = [sys.executable, "-m", module]
        self._arguments = list(arguments)
        self._environment = os.environ | {"TVM_NUM_THREADS": str(threads)}
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self.generation = 0
        """Counts the children lost: what an older generation was told or had built is gone."""

    def start(self) -> None:
        """Starts the child if it is not running, without waiting for it to be ready."""
        if self._process is not None:
            return
        ours, theirs = socket.socketpair()
        command = [*self._command, str(theirs.fileno()), *self._arguments]
        self._process = subprocess.Popen(
            command,
            env=self._environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the parent, which ends the batch in order
        )
        theirs.close()
        self._connection = Connection(ours.detach())

    def wait_ready(self) -> None:
        """Waits until a child that was started answers.

        Raises:
            WorkFailed: It does not come up.
        """
        try:
            self.ask({"do": "hello"}, START_TIMEOUT_S)
        except Lost as lost:
            raise WorkFailed(
                f"a measuring worker that does not start ({lost.kind})",
                "a child process that imports TVM",
                f"run `{' '.join(self._command)}` to see its error",
            ) from lost

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """The child's reply to a request.

        Raises:
            Lost: It died, or was silent for `timeout_s` seconds and has been killed.
        """
        self.start()
        assert self._connection is not None
        try:
            self._connection.send_bytes(json.dumps(request).encode())
            if not self._connection.poll(timeout_s):
                self.stop()
                raise Lost("timeout")
            reply: dict[str, Any] = json.loads(self._connection.recv_bytes())
        except (OSError, EOFError) as error:
            self.stop()
            raise Lost("crash") from error
        return reply

    def stop(self) -> None:
        """Kills the child, if any."""
        self.generation += 1
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None
