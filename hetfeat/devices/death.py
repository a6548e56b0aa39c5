"""Ending with the process that started this one."""

import ctypes
import os
import signal
import sys


def die_with_parent(parent: int | None = None) -> None:
    """A parent that is killed must not leave a hanging program behind, on a core for ever.

    Args:
        parent: Process id of the parent, where it may be gone before this is called; default None.
    """
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if parent not in {None, os.getppid()}:
        sys.exit("the process that asked for this is gone")
