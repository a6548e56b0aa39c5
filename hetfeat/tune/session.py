"""One run of the tuner on a journal: what earlier runs left, what this one spends, how it ends."""

import hashlib
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from hetfeat.dataset import sidecar_files
from hetfeat.dataset.schema import from_table
from hetfeat.dataset.store import RecordStore
from hetfeat.measure.base import DeviceLost
from hetfeat.records import Measurement, Task

log = logging.getLogger(__name__)

Ended = Literal["budget", "interrupted", "device_lost", "exhausted"]
"""Why tuning ended: its budget is spent, the user stopped it, the device was lost, or no round was
worth its time any more."""


@dataclass(frozen=True)
class Budget:
    """What tuning may spend.

    Attributes:
        seconds: Wall time in seconds, of all runs with one journal, after which no new round
            starts.
        trials_per_task: Programs measured of each task, from which a caller makes `trials`.
        trials: Programs measured in all, shared among tasks as the scheduler sees fit; 0 by
            default.
    """

    seconds: float
    trials_per_task: int
    trials: int = 0


BUDGETS = {
    "quick": Budget(seconds=210, trials_per_task=20),
    "standard": Budget(seconds=1300, trials_per_task=64),
    "full": Budget(seconds=3300, trials_per_task=192),
}
"""Budgets by the name of an effort."""


@dataclass(frozen=True)
class TuningProgress:
    """How far tuning has come.

    Attributes:
        trials: Number of programs measured in this run.
        resumed: Number of programs that the journal held already.
        failed: Number of measured programs without a latency, in this run.
        seconds: Wall time in seconds, that of earlier runs on these tasks with the same journal
            included.
        earlier_s: Wall time of those earlier runs, in seconds.
    """

    trials: int
    resumed: int
    failed: int
    seconds: float
    earlier_s: float


class Session:
    """Keeps every measurement in the journal, and counts what is spent.

    Args:
        journal: Store that keeps the measurements.
        device: Name of the device.
        tasks: Tasks that are tuned.
        budget: Trials and seconds that may be spent.

    Attributes:
        measurements: Measurements on the device that the journal holds, those of other tasks, too.
        ended: Reason why tuning ended; its budget, unless something else is said.
    """

    def __init__(
        self, journal: RecordStore, device: str, tasks: Sequence[Task], budget: Budget
    ) -> None:
        hashes = {task.hash for task in tasks}
        self._journal, self._budget = journal, budget
        spent_by = f"{device} {' '.join(sorted(hashes))}"
        self._key = hashlib.sha256(spent_by.encode()).hexdigest()[:16]
        self._earlier_s = sidecar_files.spent_s(journal.path, self._key)
        self._started = time.monotonic() - self._earlier_s
        self.measurements = [m for part in journal.scan(device=device) for m in from_table(part)]
        self._resumed = sum(m.program.task.hash in hashes for m in self.measurements)
        self._trials = self._failed = 0
        self.ended: Ended = "budget"

    def measured_of(self, task: Task) -> list[Measurement]:
        """The measurements of a task, as they came."""
        measured = [m for m in self.measurements if m.program.task.hash == task.hash]
        return sorted(measured, key=lambda m: m.unix_s)

    @property
    def trials_left(self) -> int:
        """Programs that may still be measured; 0 where the time is spent."""
        spent = self.progress().seconds > self._budget.seconds
        return 0 if spent else max(0, self._budget.trials - self._trials - self._resumed)

    def record(self, measurement: Measurement) -> None:
        """Keeps a measurement in the journal, and counts it."""
        self._journal.append([measurement])
        self.measurements.append(measurement)
        self._trials += 1
        self._failed += measurement.latency_s is None

    def save_time_spent(self) -> None:
        """Keeps in the journal what this run and earlier ones took."""
        sidecar_files.save_spent_s(self._journal.path, self._key, self.progress().seconds)

    def progress(self) -> TuningProgress:
        """How far it has come by now."""
        seconds = time.monotonic() - self._started
        return TuningProgress(self._trials, self._resumed, self._failed, seconds, self._earlier_s)

    @contextmanager
    def kept_when_interrupted(self) -> Iterator[None]:
        """Ends the body early, but orderly, at Ctrl-C and when the device is lost."""
        try:
            yield
        except KeyboardInterrupt:
            self.ended = "interrupted"
        except DeviceLost as error:
            log.warning("tuning ends with what it has: %s", error)
            self.ended = "device_lost"
