"""A few programs measured again and again while collecting: does the machine drift?"""

import statistics
import time
from collections.abc import Mapping, Sequence

from hetfeat.dataset import sidecar_files
from hetfeat.dataset.store import RecordStore
from hetfeat.measure.base import DeviceMeasurer
from hetfeat.records import Program, Task


class DriftProbe:
    """A few programs of a store, measured again and again: the best of its first few tasks.

    They are measured once when they are known and then at intervals, on every device.

    Args:
        store: Store that keeps their measurements.
        tasks: Tasks by hash.
        count: Number of programs, each of another task; 4 by default.
        interval_s: Time from one measurement to the next, in seconds; 600 by default.
    """

    def __init__(
        self,
        store: RecordStore,
        tasks: Mapping[str, Task],
        *,
        count: int = 4,
        interval_s: float = 600.0,
    ) -> None:
        self._store, self._count, self._interval_s = store, count, interval_s
        self._last_s = float("-inf")
        rows = sidecar_files.read_rows(store.path, sidecar_files.DRIFT_PROBES)
        traces = {(row["task"], row["trace"]) for row in rows if row["task"] in tasks}
        self._programs = [Program(tasks[task], trace) for task, trace in sorted(traces)]

    def offer(self, task: Task, trace: str) -> None:
        """Takes a finished task's best program in while there are too few."""
        if len(self._programs) < self._count and all(p.task != task for p in self._programs):
            self._programs.append(Program(task, trace))
            self._last_s = float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether there are programs that it is time to measure."""
        return bool(self._programs) and time.monotonic() - self._last_s >= self._interval_s

    def measure_if_due(self, measurers: Sequence[DeviceMeasurer]) -> None:
        """Measures all programs on all devices if it is time to; nothing else may be under way."""
        if not self.is_due:
            return
        for measurer in measurers:
            for measurement in measurer.measure(self._programs):
                sidecar_files.append_measurement(
                    self._store.path, sidecar_files.DRIFT_PROBES, measurement
                )
        self._last_s = time.monotonic()


def drift(store: RecordStore) -> dict[str, float]:
    """By device, the median over the programs of how far one strays.

    One program strays by (highest - lowest) / median of its times.
    """
    series: dict[tuple[str, str], list[float]] = {}
    for row in sidecar_files.read_rows(store.path, sidecar_files.DRIFT_PROBES):
        if row["latencies_s"]:
            median = statistics.median(row["latencies_s"])
            series.setdefault((row["device"], row["program"]), []).append(median)
    strayed: dict[str, list[float]] = {}
    for (device, _), values in series.items():
        stray = (max(values) - min(values)) / statistics.median(values)
        strayed.setdefault(device, []).append(stray)
    return {device: statistics.median(values) for device, values in strayed.items()}
