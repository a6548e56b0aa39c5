"""A persistent child process that answers requests, and is killed when it does not.

The stock builder starts a process a batch, whose import alone takes longer than building the
batch (docs/decisions/measuring.md). This child imports once; what brings it down costs one request
and a restart of about a second.
"""

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from types import MappingProxyType
from typing import IO, TypeVar

import psutil

from hetfeat.devices.host import TVM_SPINS
from hetfeat.devices.without_torch import words_to_run
from hetfeat.errors import WorkFailed
from hetfeat.measure.messages import Hello, Message, RequestFailed
from hetfeat.measure.worker_loop import receive
from hetfeat.records import ErrorKind

R = TypeVar("R")

OUT_OF_MEMORY = b"bad_alloc"
"""Text that C++ writes to standard error when it ends a process for want of memory."""


class Lost(Exception):
    """The worker died or was killed for silence; its state is gone.

    Attributes:
        kind: `timeout`, `crash` or `memory`.
    """

    def __init__(self, kind: ErrorKind) -> None:
        super().__init__(kind)
        self.kind: ErrorKind = kind


class Worker:
    """One child process running a module's `serve` loop.

    Args:
        module: Name of the module run as the child's main program.
        arguments: Words of its command line, after the number of the file descriptor to talk over.
        threads: Number of threads of the child, its `TVM_NUM_THREADS`. TVM would take half the
            cores.
        needs_torch: Whether the child imports torch, default False: then it finds none.
        environment: Further variables of the child's environment, default none.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        threads: int,
        *,
        needs_torch: bool = False,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._command = [sys.executable, "-m", module] if needs_torch else words_to_run(module)
        self._arguments = list(arguments)
        spins = {"TVM_THREAD_POOL_SPIN_COUNT": TVM_SPINS}
        threads_of = {"TVM_NUM_THREADS": str(threads)}
        self._environment = {**spins, **os.environ, **threads_of, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._errors: IO[bytes] | None = None
        self._closing = threading.Event()
        self.generation = 0
        """Number of children lost: what an older generation was told or had built is gone."""

    def start(self) -> None:
        """Starts the child if it is not running, without waiting for it to be ready.

        Raises:
            Lost: The worker has been closed.
        """
        if self._closing.is_set():
            raise Lost("crash")
        if self._process is not None:
            return
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # `stop` closes it
        ours, theirs = socket.socketpair()
        command = [*self._command, str(theirs.fileno()), *self._arguments]
        self._process = subprocess.Popen(
            command,
            env=self._environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for the parent, which ends the batch in order
        )
        theirs.close()
        self._connection = Connection(ours.detach())
        if self._closing.is_set():  # meanwhile: `close` may have come too early to see the child
            self.stop()
            raise Lost("crash")

    def wait_ready(self, timeout_s: float = 120.0) -> None:
        """Waits until a child that was started answers.

        Args:
            timeout_s: Longest wait in seconds, default 120: beside other work TVM loads slowly.

        Raises:
            WorkFailed: It does not come up.
        """
        try:
            self.ask(Hello(), timeout_s)
        except (Lost, RequestFailed) as error:
            raise WorkFailed(
                f"a measuring worker that does not start ({error.kind})",
                "a child process that imports TVM",
                f"run `{sys.executable} -c 'import {self._command[-1]}'` to see its error",
            ) from error

    def ask(self, request: Message[R], timeout_s: float) -> R:
        """What a request comes to.

        Raises:
            RequestFailed: The child reports a failure, and goes on.
            Lost: It died, or was silent for `timeout_s` seconds and has been killed.
        """
        self.start()
        assert self._connection is not None
        try:
            self._connection.send_bytes(request.model_dump_json().encode())
            if not self._connection.poll(timeout_s):
                self.stop()
                raise Lost("timeout")
            return receive(self._connection, request)
        except RequestFailed:
            raise
        except (OSError, EOFError) as error:
            kind: ErrorKind = "memory" if OUT_OF_MEMORY in self._last_words() else "crash"
            self.stop()
            raise Lost(kind) from error
        except BaseException:
            self.stop()  # or its reply would be taken for that of the next request
            raise

    def restart_above(self, resident_bytes: int) -> None:
        """Ends a child that has come to hold more memory; the next request gets a fresh one."""
        if self._process is not None:
            try:
                held = psutil.Process(self._process.pid).memory_info().rss
            except psutil.Error:
                held = 0  # it is gone: the next request will tell
            if held > resident_bytes:
                self.stop()

    def close(self) -> None:
        """Kills the child for good; another thread's `ask` ends with `Lost`. Then call `stop`."""
        self._closing.set()
        self.kill()

    def kill(self) -> None:
        """Kills the child now; another thread's `ask` ends with `Lost`."""
        if (process := self._process) is not None:
            process.kill()

    def stop(self) -> None:
        """Kills the child, if any."""
        self.generation += 1
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._connection is not None:
            self._connection.close()
        if self._errors is not None:
            self._errors.close()
        self._process = self._connection = self._errors = None

    def _last_words(self) -> bytes:
        """The end of what the child wrote on standard error."""
        assert self._process is not None and self._errors is not None
        self._process.kill()
        self._process.wait()
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 2000))
        return self._errors.read()
