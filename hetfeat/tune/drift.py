"""A few programs measured again and again while collecting: does the machine drift?"""

import statistics
import time
from collections.abc import Mapping, Sequence

from hetfeat.dataset import sidecar_files
from hetfeat.dataset.store import RecordStore
from hetfeat.measure.base import DeviceMeasurer
from hetfeat.records import Program, Task

COUNT = 4
EVERY_S = 600.0


class Anchors:
    """The anchor programs of a store: the best known program of its first few tasks.

    They are measured once when they are known and then every `EVERY_S` seconds, on every device.
    """

    def __init__(self, store: RecordStore, tasks: Mapping[str, Task]) -> None:
        self._store = store
        self._last_s = float("-inf")
        rows = sidecar_files.noted(store.path, sidecar_files.ANCHORS)
        known = {(row["task"], row["trace"]) for row in rows if row["task"] in tasks}
        self._programs = [Program(tasks[task], trace) for task, trace in sorted(known)]

    def offer(self, task: Task, trace: str) -> None:
        """Takes a finished task's best program as an anchor while there are too few."""
        if len(self._programs) < COUNT and all(p.task != task for p in self._programs):
            self._programs.append(Program(task, trace))
            self._last_s = float("-inf")

    def measure_if_due(self, measurers: Sequence[DeviceMeasurer]) -> None:
        """Measures all anchors on all devices if it is time to."""
        if time.monotonic() - self._last_s < EVERY_S:
            return
        for measurer in measurers:
            for measurement in measurer.measure(self._programs):
                sidecar_files.note(self._store.path, sidecar_files.ANCHORS, measurement)
        self._last_s = time.monotonic()


def drift(store: RecordStore) -> dict[str, float]:
    """By device, the median over anchors of how far one strays: (highest - lowest) / median."""
    series: dict[tuple[str, str], list[float]] = {}
    for row in sidecar_files.noted(store.path, sidecar_files.ANCHORS):
        if row["latencies_s"]:
            median = statistics.median(row["latencies_s"])
            series.setdefault((row["device"], row["program"]), []).append(median)
    strayed: dict[str, list[float]] = {}
    for (device, _), values in series.items():
        stray = (max(values) - min(values)) / statistics.median(values)
        strayed.setdefault(device, []).append(stray)
    return {device: statistics.median(values) for device, values in strayed.items()}
