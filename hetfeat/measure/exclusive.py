"""One process of this machine times programs at a time."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_NAME = "hetfeat-measuring.lock"


@contextmanager
def sole_measurer() -> Iterator[None]:
    """Waits until nobody else on this machine is timing, and keeps others waiting meanwhile.

    The lock is advisory and ends with its process, however that ends.
    """
    path = Path(tempfile.gettempdir()) / LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY)  # another user's file may not be opened to create
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
