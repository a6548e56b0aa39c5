"""SIGTERM and SIGHUP end a command as Ctrl-C does, with an exit code of their own."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

_STOPPING = (signal.SIGTERM, signal.SIGHUP)


@dataclass
class Stop:
    """What stopped a command, where it was stopped; Ctrl-C unless another signal came.

    Attributes:
        number: Number of the signal, default SIGINT's.
    """

    number: int = signal.SIGINT

    @property
    def exit_code(self) -> int:
        """As a shell says that a signal ended a program."""
        return 128 + self.number


@contextlib.contextmanager
def stopped_as_by_ctrl_c() -> Iterator[Stop]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread during the block.

    A signal that is ignored (by nohup) or handled by whoever calls is left as it is.
    """
    stop, owner = Stop(), os.getpid()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a fork: the signal ends it as it would have ended it before
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        stop.number = number
        raise KeyboardInterrupt

    taken: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        taken = [number for number in _STOPPING if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield stop
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        # Where an `exec` was interrupted, of dataclasses say, CPython keeps a mark, and ends
        # `python -m` by SIGINT whatever its exit code; each `exec` of text takes the mark away.
        exec("")
