"""Where the time of a deployment goes, stage by stage."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hetfeat import progress

log = logging.getLogger(__name__)


class Stopwatch:
    """Wall time since it was made, and of each stage since.

    Attributes:
        seconds: Seconds of each stage by its name, in the order in which they began to count.
    """

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self.seconds: dict[str, float] = {}

    @property
    def total_s(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._started_s

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Counts the time until it is left to a stage; tells the log at DEBUG, and who traces."""
        started_s = time.monotonic()
        try:
            with progress.stage(name):
                yield
        finally:
            took_s = time.monotonic() - started_s
            self.seconds[name] = self.seconds.get(name, 0.0) + took_s
            log.debug("%s: %.1f s", name, took_s)
