"""One process of this machine times programs at a time, and nobody builds meanwhile."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_NAME, GPU_LOCK_NAME = "hetfeat-measuring.lock", "hetfeat-measuring-gpu.lock"


@contextmanager
def timing() -> Iterator[None]:
    """Waits until nobody on this machine times or builds, and keeps them waiting meanwhile.

    The lock is advisory and ends with its process, however that ends.
    """
    with _lock(LOCK_NAME, fcntl.LOCK_EX):
        yield


@contextmanager
def timing_gpu() -> Iterator[None]:
    """Waits until nobody times on this machine's GPU; the CPU may build meanwhile."""
    with _lock(GPU_LOCK_NAME, fcntl.LOCK_EX):
        yield


@contextmanager
def building() -> Iterator[None]:
    """Waits until nobody on this machine is timing, and keeps them waiting meanwhile."""
    with _lock(LOCK_NAME, fcntl.LOCK_SH):
        yield


@contextmanager
def _lock(name: str, how: int) -> Iterator[None]:
    path = Path(tempfile.gettempdir()) / name
    try:
        descriptor = os.open(path, os.O_RDONLY)  # another user's file may not be opened to create
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)
