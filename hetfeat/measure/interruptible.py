"""Threads whose results the main thread waits for, until Ctrl-C."""

import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class InterruptibleThreads(ThreadPoolExecutor):
    """A pool of threads, what is submitted to which ends a wait by Ctrl-C.

    TVM's prover (Z3) handles SIGINT while it proves. It puts Python's handler back with SA_RESTART,
    and a wait for a lock would then go on: Python heeds a signal in the main thread alone.
    """

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """See `ThreadPoolExecutor`, whose `map` submits, too."""
        signal.siginterrupt(signal.SIGINT, True)
        return super().submit(fn, *args, **kwargs)
