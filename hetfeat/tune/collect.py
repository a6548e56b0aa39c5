"""Measures programs of real networks, on one device or the same ones on several."""

import logging
import random
import statistics
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow.compute as pc

from hetfeat.dataset import sidecar_files
from hetfeat.dataset.schema import from_table
from hetfeat.dataset.store import RecordStore
from hetfeat.errors import WorkFailed
from hetfeat.measure.base import DeviceLost, DeviceMeasurer
from hetfeat.records import Measurement, Program, Task, spread
from hetfeat.tune.drift import Anchors
from hetfeat.tune.evaluation_tasks import evaluation_order

log = logging.getLogger(__name__)

BATCH = 16
RANDOM_SHARE = 0.5
"""Programs of a task drawn at random; the rest are variations of its best so far. A model that
has seen only random programs cannot rank good ones."""
PARENTS = 4
REPRODUCIBLE_SPREAD = 0.25
"""Measurements whose repeats differ by more, after the child has tried again, are not kept."""
COMPACT_EVERY = 2048
"""Records after which the journal becomes shards: it is text, and large."""
ATTEMPTS = 1.25
"""Of an evaluation task, tried in all for each program wanted on every device."""


@dataclass(frozen=True)
class Plan:
    """How much to measure.

    Attributes:
        programs_per_task: Programs of each task.
        evaluation_tasks: How many tasks are measured densely, for evaluation.
        evaluation_programs: Programs of each of these that ran on every device; tasks with fewer
            are passed over.
        seed: Seed of every draw.
    """

    programs_per_task: int
    evaluation_tasks: int = 0
    evaluation_programs: int = 256
    seed: int = 0


@dataclass
class Progress:
    """What collecting has done so far, in this run and, for `known`, before it."""

    programs: int = 0
    failed: int = 0
    rejected: int = 0
    tasks: int = 0
    known: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Wall time of this run."""
        return time.monotonic() - self.started


@dataclass
class _Known:
    """Programs of one task that one device has answered for: their keys, and what is fast."""

    keys: set[str] = field(default_factory=set)
    latency_s: dict[str, float] = field(default_factory=dict)

    def best(self) -> list[str]:
        """The fastest traces."""
        return sorted(self.latency_s, key=self.latency_s.__getitem__)[:PARENTS]


def collect(
    store: RecordStore, measurers: Sequence[DeviceMeasurer], tasks: Iterable[Task], plan: Plan
) -> Iterator[Progress]:
    """Measures until every task has its programs, or no more are found.

    The first device proposes; what ran there is replayed verbatim on the others, batch by batch
    in turn, so that slow changes of the machine meet all devices alike. Every measurement is in
    the store before the next is made; what the store holds already is not measured again, so an
    interrupted run goes on where it was.

    Yields:
        The progress, after each measurement.
    """
    return _Collecting(store, measurers, list(tasks), plan).run()


class _Collecting:
    def __init__(
        self,
        store: RecordStore,
        measurers: Sequence[DeviceMeasurer],
        tasks: list[Task],
        plan: Plan,
    ) -> None:
        self._store, self._measurers, self._tasks, self._plan = store, measurers, tasks, plan
        self._progress = Progress()
        self._known = {m.profile.name: _known(store, m.profile.name) for m in measurers}
        self._anchors = Anchors(store, {task.hash: task for task in tasks})
        self._passed_over: WorkFailed | None = None
        self._progress.known = sum(len(self._of(m, t).keys) for m in measurers for t in tasks)

    def run(self) -> Iterator[Progress]:
        if self._plan.evaluation_tasks:
            yield from self._evaluation()
        wanted = self._plan.programs_per_task
        for task in self._tasks:
            self._progress.tasks += yield from self._fill(task, wanted, wanted)
            yield self._progress
        if self._passed_over and not self._progress.programs + self._progress.known:
            raise self._passed_over

    def _evaluation(self) -> Iterator[Progress]:
        wanted = self._plan.evaluation_programs
        chosen = sidecar_files.evaluation_tasks(self._store.path)
        by_hash = {task.hash: task for task in self._tasks}
        order = evaluation_order(self._tasks, self._plan.seed)
        for task in dict.fromkeys((*(by_hash[c] for c in chosen if c in by_hash), *order)):
            if task.hash not in chosen:
                if len(chosen) >= self._plan.evaluation_tasks:
                    break
                if not self._has(task, wanted):
                    continue
                chosen.append(task.hash)
                sidecar_files.save_evaluation_tasks(self._store.path, chosen)
            yield from self._fill(task, wanted, round(ATTEMPTS * wanted))

    def _has(self, task: Task, wanted: int) -> bool:
        """Whether a task's design space has so many programs."""
        try:  # twice as many: children may draw the same program
            found = self._measurers[0].sample(task, 2 * wanted, self._plan.seed)
        except DeviceLost:
            raise
        except WorkFailed as error:
            self._pass_over(error)
            return False
        return len(found) >= wanted

    def _fill(self, task: Task, wanted: int, attempts: int) -> Generator[Progress, None, bool]:
        """Measures until so many programs ran on every device, or so many were tried.

        Returns:
            Whether it went so far: a task that no programs can be made of is passed over.
        """
        try:
            yield from self._measure_until(task, wanted, attempts)
        except DeviceLost:
            raise
        except WorkFailed as error:
            self._pass_over(error)
            return False
        return True

    def _pass_over(self, error: WorkFailed) -> None:
        log.warning("%s", error)
        self._passed_over = error

    def _measure_until(self, task: Task, wanted: int, attempts: int) -> Iterator[Progress]:
        first, *others = self._measurers
        known = self._of(first, task)
        for measurer in others:
            missing = self._missing(measurer, task)
            for start in range(0, len(missing), BATCH):
                yield from self._measure(measurer, task, missing[start : start + BATCH])
        while len(known.keys) < attempts and self._on_all_devices(task) < wanted:
            batch = self._propose(task, known, min(BATCH, attempts - len(known.keys)), wanted)
            if not batch:
                break  # a small design space: there are no more programs
            yield from self._measure(first, task, batch)
            ran = [program for program in batch if program.trace in known.latency_s]
            for measurer in others:
                yield from self._measure(measurer, task, ran)
            self._anchors.measure_if_due(self._measurers)
        if known.latency_s:
            self._anchors.offer(task, known.best()[0])

    def _measure(
        self, measurer: DeviceMeasurer, task: Task, batch: list[Program]
    ) -> Iterator[Progress]:
        known = self._of(measurer, task)
        incumbent = {task.hash: min(known.latency_s.values(), default=float("inf"))}
        for measurement in measurer.measure_each(batch, incumbent):
            self._keep(measurement, known)
            yield self._progress
            if self._progress.programs % COMPACT_EVERY == 0:
                self._store.compact()

    def _keep(self, measurement: Measurement, known: _Known) -> None:
        known.keys.add(measurement.program.key)
        self._progress.programs += 1
        if measurement.error is None and spread(measurement.latencies_s) > REPRODUCIBLE_SPREAD:
            sidecar_files.note(self._store.path, sidecar_files.REJECTED, measurement)
            self._progress.rejected += 1
            return
        self._store.append([measurement])
        if measurement.latency_s is None:
            self._progress.failed += 1
        else:
            known.latency_s[measurement.program.trace] = measurement.latency_s

    def _missing(self, measurer: DeviceMeasurer, task: Task) -> list[Program]:
        """Programs that the first device has run and this one has not met, after an interrupt."""
        here, first = self._of(measurer, task), self._measurers[0]
        keys = self._of(first, task).latency_s.keys()
        wanted = {Program(task, trace).key for trace in keys} - here.keys
        if not wanted:
            return []
        tables = self._store.scan(device=first.profile.name, where=pc.field("task") == task.hash)
        found = (measurement.program for table in tables for measurement in from_table(table))
        return [program for program in found if program.key in wanted]

    def _propose(self, task: Task, known: _Known, count: int, wanted: int) -> list[Program]:
        measurer = self._measurers[0]
        draw = random.Random(f"{self._plan.seed} {task.hash} {len(known.keys)}").randrange(2**20)
        found: list[Program] = []
        if len(known.keys) >= RANDOM_SHARE * wanted and known.latency_s:
            found = measurer.vary(task, known.best(), 2 * count, draw)
        fresh = [program for program in found if program.key not in known.keys]
        if len(fresh) < count:
            more = measurer.sample(task, 2 * count, draw)
            keys = known.keys | {program.key for program in fresh}
            fresh += [program for program in more if program.key not in keys]
        return fresh[:count]

    def _on_all_devices(self, task: Task) -> int:
        ran = (self._of(measurer, task).latency_s.keys() for measurer in self._measurers)
        return len(set.intersection(*(set(traces) for traces in ran)))

    def _of(self, measurer: DeviceMeasurer, task: Task) -> _Known:
        return self._known[measurer.profile.name].setdefault(task.hash, _Known())


def _known(store: RecordStore, device: str) -> dict[str, _Known]:
    """What a device has answered for, by task."""
    known: dict[str, _Known] = {}
    for table in store.scan(["task", "program", "trace", "latencies_s"], device):
        for row in table.to_pylist():
            one = known.setdefault(row["task"], _Known())
            one.keys.add(row["program"])
            if row["latencies_s"]:
                one.latency_s[row["trace"]] = statistics.median(row["latencies_s"])
    for row in sidecar_files.noted(store.path, sidecar_files.REJECTED):
        if row["device"] == device:
            known.setdefault(row["task"], _Known()).keys.add(row["program"])
    return known
