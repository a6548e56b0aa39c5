"""Ending with the process that started this one."""

import ctypes
import signal
import sys


def die_with_parent() -> None:
    """A parent that is killed must not leave a hanging program behind, on a core for ever."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
