"""Measures programs of real networks, on one device or the same ones on several."""

import logging
import random
import statistics
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow.compute as pc

from hetfeat.dataset import sidecar_files
from hetfeat.dataset.schema import from_table
from hetfeat.dataset.store import RecordStore
from hetfeat.errors import WorkFailed
from hetfeat.measure.base import DeviceLost, DeviceMeasurer
from hetfeat.measure.rounds import rounds_of
from hetfeat.records import Measurement, Program, Task, spread
from hetfeat.tune.drift import DriftProbe
from hetfeat.tune.evaluation_tasks import evaluation_order

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """How much to measure.

    Attributes:
        programs_per_task: Programs measured of each task.
        evaluation_tasks: Number of tasks measured densely, for evaluation; 0 by default.
        evaluation_programs: Programs of each of these that ran on every device; 256 by default.
            Tasks with fewer are passed over.
        seed: Seed of every draw; 0 by default.
    """

    programs_per_task: int
    evaluation_tasks: int = 0
    evaluation_programs: int = 256
    seed: int = 0


@dataclass(frozen=True)
class CollectConfig:
    """How programs are drawn and kept.

    Attributes:
        batch: Programs measured on one device before the next device's turn; 16 by default.
        random_share: Share of a task's programs drawn at random, others vary its best so far; 0.5
            by default: a model that has seen only random programs cannot rank good ones.
        parents: Fastest programs of a task that are varied; 4 by default.
        reproducible_spread: Spread of a program's repeats, relative to their median, above which
            its measurement is not kept, though the child has tried again; 0.25 by default.
        compact_every: Records after which the journal becomes shards; 2048 by default: it is text,
            and large.
        attempts: Programs of an evaluation task tried for each that is to run on every device;
            1.25 by default.
        drift_programs: Number of programs measured again and again, to see drift; 4 by default.
        drift_interval_s: Time from one such measurement to the next, in seconds; 600 by default.
    """

    batch: int = 16
    random_share: float = 0.5
    parents: int = 4
    reproducible_spread: float = 0.25
    compact_every: int = 2048
    attempts: float = 1.25
    drift_programs: int = 4
    drift_interval_s: float = 600.0


@dataclass
class CollectProgress:
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


@dataclass(frozen=True)
class _Wanted:
    """Programs of a task that are to run on every device.

    Attributes:
        task: Task.
        programs: Number of them.
        attempts: Most programs tried.
    """

    task: Task
    programs: int
    attempts: int


@dataclass
class _Batch:
    """Programs that the first device is to measure, and those that it has not."""

    wanted: _Wanted
    programs: list[Program]
    left: int


@dataclass
class _Answered:
    """Programs of one task that one device has answered for: their keys, and what is fast."""

    keys: set[str] = field(default_factory=set)
    latency_s: dict[str, float] = field(default_factory=dict)

    def fastest(self, count: int) -> list[str]:
        """The fastest traces."""
        return sorted(self.latency_s, key=self.latency_s.__getitem__)[:count]


def collect(
    store: RecordStore,
    measurers: Sequence[DeviceMeasurer],
    tasks: Iterable[Task],
    plan: Plan,
    config: CollectConfig = CollectConfig(),
) -> Iterator[CollectProgress]:
    """Measures until every task has its programs, or no more are found.

    The first device proposes; what ran there is replayed verbatim on the others, batch by batch
    in turn, so that slow changes of the machine meet all devices alike. Every measurement is in
    the store before the next is made; what the store holds already is not measured again, so an
    interrupted run goes on where it was. Where others build for the first device, batches of
    several tasks are on their way at once.

    Args:
        store: Store that keeps the records.
        measurers: Devices, the first of which proposes.
        tasks: Tasks, known to the measurers.
        plan: Number of programs of each task.
        config: Settings; those of `CollectConfig` by default.

    Yields:
        The progress, after each measurement and at the end.
    """
    return _Collecting(store, measurers, list(tasks), plan, config).run()


class _Collecting:
    def __init__(
        self,
        store: RecordStore,
        measurers: Sequence[DeviceMeasurer],
        tasks: list[Task],
        plan: Plan,
        config: CollectConfig,
    ) -> None:
        self._store, self._measurers, self._tasks, self._plan = store, measurers, tasks, plan
        self._first = measurers[0]
        self._progress, self._config = CollectProgress(), config
        self._answered = {m.profile.name: _load_answered(store, m.profile.name) for m in measurers}
        self._drift_probe = DriftProbe(
            store,
            {task.hash: task for task in tasks},
            count=config.drift_programs,
            interval_s=config.drift_interval_s,
        )
        self._passed_over: WorkFailed | None = None
        self._progress.known = sum(len(self._of(m, t).keys) for m in measurers for t in tasks)

    def run(self) -> Iterator[CollectProgress]:
        self._rounds = rounds_of(self._first)
        try:
            yield from self._fill(self._wanted())
            yield self._progress
        finally:
            self._rounds.stop()
        if self._passed_over and not self._progress.programs + self._progress.known:
            raise self._passed_over

    def _wanted(self) -> Iterator[_Wanted]:
        """Evaluation tasks first: an interrupted run has them."""
        programs, dense = self._plan.programs_per_task, self._plan.evaluation_programs
        attempts = max(programs, round(self._config.attempts * dense))
        evaluation = set()
        for task in self._evaluation_tasks() if self._plan.evaluation_tasks else ():
            evaluation.add(task.hash)
            yield _Wanted(task, max(programs, dense), attempts)
        for task in self._tasks:
            if task.hash not in evaluation:
                yield _Wanted(task, programs, programs)

    def _evaluation_tasks(self) -> Iterator[Task]:
        wanted, count = self._plan.evaluation_programs, self._plan.evaluation_tasks
        chosen = sidecar_files.evaluation_tasks(self._store.path)
        by_hash = {task.hash: task for task in self._tasks}
        order = evaluation_order(self._tasks, self._plan.seed)
        for task in dict.fromkeys((*(by_hash[c] for c in chosen if c in by_hash), *order)):
            if task.hash not in chosen:
                if len(chosen) >= count:
                    break
                if not self._has(task, wanted):
                    continue
                chosen.append(task.hash)
                sidecar_files.save_evaluation_tasks(self._store.path, chosen)
            yield task

    def _has(self, task: Task, wanted: int) -> bool:
        """Whether a task's design space has so many programs."""
        try:  # twice as many: children may draw the same program
            programs = self._first.sample(task, 2 * wanted, self._plan.seed)
        except DeviceLost:
            raise
        except WorkFailed as error:
            self._pass_over(error)
            return False
        return len(programs) >= wanted

    def _fill(self, tasks: Iterator[_Wanted]) -> Iterator[CollectProgress]:
        """Measures until so many programs of each task ran on every device, or were tried.

        A task that no programs can be made of is passed over. Before drift is measured all that is
        under way comes in.
        """
        begun: deque[_Wanted] = deque()
        flying: dict[str, _Batch] = {}
        while True:
            while len(flying) < self._rounds.at_once and not (flying and self._drift_probe.is_due):
                if not begun:
                    if (wanted := next(tasks, None)) is None:
                        break
                    yield from self._catch_up(wanted.task)
                    begun.append(wanted)
                wanted = begun.popleft()
                if programs := self._next_programs(wanted):
                    self._rounds.begin(programs, self._incumbent_s(self._first, wanted.task))
                    flying[wanted.task.hash] = _Batch(wanted, programs, len(programs))
            if not flying:
                return
            measurement = self._rounds.next()
            batch = flying[measurement.program.task.hash]
            self._keep(self._first, measurement)
            yield self._progress
            batch.left -= 1
            if not batch.left:
                begun.append(flying.pop(batch.wanted.task.hash).wanted)
                yield from self._replay(batch)
                if not flying and self._drift_probe.is_due:
                    self._measure_drift()

    def _catch_up(self, task: Task) -> Iterator[CollectProgress]:
        """Measures on the other devices what ran on the first before an interrupt."""
        size = self._config.batch
        for measurer in self._measurers[1:]:
            missing = self._missing(measurer, task)
            for start in range(0, len(missing), size):
                yield from self._measure(measurer, task, missing[start : start + size])

    def _replay(self, batch: _Batch) -> Iterator[CollectProgress]:
        """Measures on the other devices what ran on the first."""
        task = batch.wanted.task
        latency_s = self._of(self._first, task).latency_s
        ran = [program for program in batch.programs if program.trace in latency_s]
        for measurer in self._measurers[1:]:
            yield from self._measure(measurer, task, ran)

    def _measure_drift(self) -> None:
        """The rounds end meanwhile: they may hold the device's servers."""
        self._rounds.stop()
        self._drift_probe.measure_if_due(self._measurers)
        self._rounds = rounds_of(self._first)

    def _next_programs(self, wanted: _Wanted) -> list[Program]:
        """Programs of a task that are not tried yet; none where it has enough, or has no more."""
        task, answered = wanted.task, self._of(self._first, wanted.task)
        left, programs = wanted.attempts - len(answered.keys), []
        try:
            if left > 0 and self._on_all_devices(task) < wanted.programs:
                count = min(self._config.batch, left)
                programs = self._propose(task, answered, count, wanted.programs)
        except DeviceLost:
            raise
        except WorkFailed as error:
            self._pass_over(error)
            return []
        if not programs:
            self._progress.tasks += 1
            if answered.latency_s:
                self._drift_probe.offer(task, answered.fastest(1)[0])
        return programs

    def _pass_over(self, error: WorkFailed) -> None:
        log.warning("%s", error)
        self._passed_over = error

    def _measure(
        self, measurer: DeviceMeasurer, task: Task, programs: list[Program]
    ) -> Iterator[CollectProgress]:
        incumbent_s = self._incumbent_s(measurer, task)
        for measurement in measurer.measure_each(programs, incumbent_s):
            self._keep(measurer, measurement)
            yield self._progress

    def _incumbent_s(self, measurer: DeviceMeasurer, task: Task) -> dict[str, float]:
        best_s = min(self._of(measurer, task).latency_s.values(), default=None)
        return {} if best_s is None else {task.hash: best_s}

    def _keep(self, measurer: DeviceMeasurer, measurement: Measurement) -> None:
        answered = self._of(measurer, measurement.program.task)
        answered.keys.add(measurement.program.key)
        self._progress.programs += 1
        most = self._config.reproducible_spread
        if measurement.error is None and spread(measurement.latencies_s) > most:
            sidecar_files.append_measurement(self._store.path, sidecar_files.REJECTED, measurement)
            self._progress.rejected += 1
        else:
            self._store.append([measurement])
            if measurement.latency_s is None:
                self._progress.failed += 1
            else:
                answered.latency_s[measurement.program.trace] = measurement.latency_s
        if self._progress.programs % self._config.compact_every == 0:
            self._store.compact()

    def _missing(self, measurer: DeviceMeasurer, task: Task) -> list[Program]:
        """Programs that the first device has run and this one has not met, after an interrupt."""
        here, first = self._of(measurer, task), self._first
        keys = self._of(first, task).latency_s.keys()
        missing = {Program(task, trace).key for trace in keys} - here.keys
        if not missing:
            return []
        tables = self._store.scan(device=first.profile.name, where=pc.field("task") == task.hash)
        programs = (measurement.program for table in tables for measurement in from_table(table))
        return [program for program in programs if program.key in missing]

    def _propose(self, task: Task, answered: _Answered, count: int, wanted: int) -> list[Program]:
        measurer, tried = self._first, len(answered.keys)
        draw = random.Random(f"{self._plan.seed} {task.hash} {tried}").randrange(2**20)
        varied: list[Program] = []
        if tried >= self._config.random_share * wanted and answered.latency_s:
            parents = answered.fastest(self._config.parents)
            varied = measurer.vary(task, parents, 2 * count, draw)
        fresh = [program for program in varied if program.key not in answered.keys]
        if len(fresh) < count:
            more = measurer.sample(task, 2 * count, draw)
            keys = answered.keys | {program.key for program in fresh}
            fresh += [program for program in more if program.key not in keys]
        return fresh[:count]

    def _on_all_devices(self, task: Task) -> int:
        ran = (self._of(measurer, task).latency_s.keys() for measurer in self._measurers)
        return len(set.intersection(*(set(traces) for traces in ran)))

    def _of(self, measurer: DeviceMeasurer, task: Task) -> _Answered:
        return self._answered[measurer.profile.name].setdefault(task.hash, _Answered())


def _load_answered(store: RecordStore, device: str) -> dict[str, _Answered]:
    """What a device has answered for, by task."""
    answered: dict[str, _Answered] = {}
    for table in store.scan(["task", "program", "trace", "latencies_s"], device):
        for row in table.to_pylist():
            one = answered.setdefault(row["task"], _Answered())
            one.keys.add(row["program"])
            if row["latencies_s"]:
                one.latency_s[row["trace"]] = statistics.median(row["latencies_s"])
    for row in sidecar_files.read_rows(store.path, sidecar_files.REJECTED):
        if row["device"] == device:
            answered.setdefault(row["task"], _Answered()).keys.add(row["program"])
    return answered
