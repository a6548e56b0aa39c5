"""The tuning loop: choose a task, propose, measure, record, refit."""

import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from hetfeat.dataset import sidecar_files
from hetfeat.dataset.schema import from_table
from hetfeat.dataset.store import RecordStore
from hetfeat.errors import WorkFailed
from hetfeat.measure.base import DeviceLost, DeviceMeasurer
from hetfeat.models.base import CostModel
from hetfeat.records import Measurement, Program, Task
from hetfeat.search.evolution import Evolution
from hetfeat.search.tile_search import TileSearch
from hetfeat.transfer.schedule_library import ScheduleLibrary, starts_of
from hetfeat.tune.finalists import FINALISTS
from hetfeat.tune.guidance import Judge, trusted
from hetfeat.workloads.winograd.variants import Ways, choose_fastest, network_s

T = TypeVar("T")

log = logging.getLogger(__name__)

EVOLUTION = "evolution"
BATCH = 8
"""Programs of a task measured in a row; also the floor that every task gets."""
REFIT_EVERY = 64
FIRST_GAIN = 0.3
"""Share of a task's latency that its second round is expected to save."""
MEMORY = 0.5
"""Weight of what was expected before a round, beside what came of it, in what is expected next."""
LEAST_GAIN = 2e-4
"""Tuning ends where the best next round is expected to save a smaller share of the network."""
RIVAL_TRIALS = 2 * BATCH
RIVAL_MARGIN = 1.25
"""A way of computing a convolution that is so much slower than another after so many programs is
not pursued; most of what tuning gains comes early."""
UNKNOWN_S = 1.0
"""Stands for the latency of a task of which nothing has run yet: longer than most."""


@dataclass(frozen=True)
class Budget:
    """What tuning may spend.

    Attributes:
        seconds: Wall time, of all runs with one journal, after which no new round starts.
        trials_per_task: Default of `trials`, for each task.
        trials: Programs measured in all, shared among tasks as the loop sees fit.
    """

    seconds: float
    trials_per_task: int
    trials: int = 0


BUDGETS = {
    "quick": Budget(seconds=210, trials_per_task=20),
    "standard": Budget(seconds=1300, trials_per_task=64),
    "full": Budget(seconds=3300, trials_per_task=192),
}


@dataclass
class TaskState:
    """How far one task has come.

    Attributes:
        task: The task.
        weight: Its occurrences in the network.
        search: Where its candidates come from.
        leaders: Its fastest measurements, fastest first.
        trials: Programs measured.
        gain: Share of its latency that the next round is expected to save.
        exhausted: No candidates are left.
        rivals: Other tasks that compute the same: one of them will do.
    """

    task: Task
    weight: int
    search: Evolution | TileSearch
    leaders: list[Measurement] = field(default_factory=list)
    trials: int = 0
    gain: float = FIRST_GAIN
    exhausted: bool = False
    rivals: list["TaskState"] = field(default_factory=list)

    def tell(self, measurements: Sequence[Measurement]) -> None:
        """Takes measurements in, and what they saved into what is expected of the next."""
        before_s = self.best_s
        self.search.tell(measurements)
        self.trials += len(measurements)
        ran = [m for m in (*self.leaders, *measurements) if m.latency_s is not None]
        self.leaders = sorted(ran, key=lambda m: m.latency_s or 0.0)[:FINALISTS]
        # A task of which nothing runs is without gain, too, or it would take the whole budget.
        if before_s is not None or self.best_s is None:
            saved = 1 - self.best_s / before_s if before_s and self.best_s else 0.0
            kept = MEMORY ** (len(measurements) / BATCH)  # searches ask for one to BATCH at a time
            self.gain = kept * self.gain + (1 - kept) * saved

    @property
    def best(self) -> Measurement | None:
        """Its fastest measurement."""
        return self.leaders[0] if self.leaders else None

    @property
    def best_s(self) -> float | None:
        """Latency of the fastest program in seconds."""
        return self.best.latency_s if self.best else None

    @property
    def is_beaten(self) -> bool:
        """Whether a rival is so far ahead that this task will hardly be used."""
        if self.trials < RIVAL_TRIALS:
            return False
        ahead = min((r.best_s for r in self.rivals if r.best_s is not None), default=None)
        return ahead is not None and (self.best_s is None or self.best_s > RIVAL_MARGIN * ahead)

    @property
    def priority(self) -> tuple[bool, float]:
        """Untried tasks first, by FLOPs; then by the seconds that a round is expected to save."""
        if self.trials == 0:
            return True, self.weight * self.task.flops
        latency_s = UNKNOWN_S if self.best_s is None else self.best_s
        return False, self.weight * latency_s * self.gain


@dataclass
class Tuned:
    """The outcome of tuning.

    Attributes:
        best: Fastest measurement of each task by hash; a task that never ran is missing.
        leaders: The fastest few of each of these, fastest first.
        picked: Programs that the model chose for tasks that never ran.
        expected_s: What is expected of what can be computed in several ways and never ran.
        trials: Programs measured in this run.
        resumed: Programs found measured already.
        failed: Measured programs without a latency, in this run.
        seconds: Wall time, that of earlier runs on these tasks with the same journal included.
        earlier_s: What those took.
        interrupted: Ended before its budget: by the user, or because the device was lost.
        stopped: It was the user.
    """

    best: dict[str, Measurement] = field(default_factory=dict)
    leaders: dict[str, list[Measurement]] = field(default_factory=dict)
    picked: dict[str, Program] = field(default_factory=dict)
    expected_s: dict[str, float] = field(default_factory=dict)
    trials: int = 0
    resumed: int = 0
    failed: int = 0
    seconds: float = 0.0
    earlier_s: float = 0.0
    interrupted: bool = False
    stopped: bool = False


def tune(
    tasks: Sequence[tuple[Task, int]],
    measurer: DeviceMeasurer,
    model: CostModel | None,
    journal: RecordStore,
    budget: Budget,
    seed: int,
    on_round: Callable[[Tuned, TaskState], None] | None = None,
    ways: Ways | None = None,
    library: ScheduleLibrary | None = None,
    strategy: str = EVOLUTION,
) -> Tuned:
    """Tunes tasks within a budget; every measurement is in the journal before the next round.

    Args:
        tasks: Tasks and their weights; known to the measurer.
        measurer: Measures on the device.
        model: Cost model to start from, fine-tuned as measurements come in; None starts without.
        journal: Store that keeps the measurements; what it holds is not measured again.
        budget: When to stop.
        seed: Seed of the search.
        on_round: Called after each round.
        ways: What some tasks, by hash, compute and in which way: those that compute the same in
            different ways compete. Where none was measured, the library's expectation decides.
        library: Fast programs of other tasks and devices, tried first where they fit.
        strategy: Name of the search: evolution, or one of tile spaces, which asks no model.

    Returns:
        The best programs, and the model's choice where nothing ran. Ctrl-C, or a device that is
        lost, ends the loop early and keeps the former.
    """
    profile, library = measurer.profile, library or ScheduleLibrary(())
    hashes = " ".join(sorted(task.hash for task, _ in tasks))
    what = hashlib.sha256(f"{profile.name} {hashes}".encode()).hexdigest()[:16]
    earlier_s = sidecar_files.spent_s(journal.path, what)
    started = time.monotonic() - earlier_s
    known = [m for table in journal.scan(device=profile.name) for m in from_table(table)]
    judge = Judge(trusted(model) if budget.trials else model, profile, seed)
    judge.hear(known)
    if strategy == EVOLUTION:  # no other asks it
        judge.learn(known)
    states = []
    for task, weight in tasks:
        starts = partial(starts_of, library, task, measurer, seed)
        search = _search(strategy, task, measurer, seed, starts)
        judge.guide(search, task, measurer)
        states.append(TaskState(task, weight, search))
    for state in states:
        mine = [m for m in known if m.program.task.hash == state.task.hash]
        mine.sort(key=lambda m: m.unix_s)
        for start in range(0, len(mine), BATCH):  # as they came, for what is expected of the next
            state.tell(mine[start : start + BATCH])
    _introduce(states, ways or {})
    tuned = Tuned(resumed=sum(state.trials for state in states), earlier_s=earlier_s)
    refit_at = len(known) + REFIT_EVERY
    try:
        while tuned.trials + tuned.resumed < budget.trials:
            tuned.seconds = time.monotonic() - started
            open_states = [s for s in states if not s.exhausted and not s.is_beaten]
            if not open_states or tuned.seconds > budget.seconds:
                break
            state = max(open_states, key=lambda s: s.priority)
            untried, saving_s = state.priority
            if not untried and saving_s < LEAST_GAIN * _network_s(states, ways or {}):
                log.info("no round is expected to save %.2f %% any more", 100 * LEAST_GAIN)
                break
            size = min(BATCH, budget.trials - tuned.trials - tuned.resumed)
            batch = _or_warning(partial(state.search.ask, size)) or []
            state.exhausted = not batch
            incumbent_s = {} if state.best_s is None else {state.task.hash: state.best_s}
            done: list[Measurement] = []
            try:
                for found in measurer.measure_each(batch, incumbent_s):
                    journal.append([found])
                    done.append(found)
            finally:  # also what came before an interrupt
                state.tell(done)
                judge.hear(done)
                known += done
                tuned.trials += len(done)
                tuned.failed += sum(m.latency_s is None for m in done)
                sidecar_files.save_spent_s(journal.path, what, time.monotonic() - started)
            if strategy == EVOLUTION and len(known) >= refit_at:
                refit_at = len(known) + REFIT_EVERY
                judge.learn(known)
                for other in states:
                    judge.guide(other.search, other.task, measurer)
            if on_round:
                on_round(tuned, state)
        if judge.model is not None:
            tuned.expected_s = _expected_s(states, ways or {}, library)
            tuned.picked = _picked(states, ways or {}, tuned.expected_s)
    except KeyboardInterrupt:
        tuned.interrupted = tuned.stopped = True
    except DeviceLost as error:
        log.warning("tuning ends with what it has: %s", error)
        tuned.interrupted = True
    tuned.seconds = time.monotonic() - started
    tuned.leaders = {s.task.hash: s.leaders for s in states if s.leaders}
    tuned.best = {task: leaders[0] for task, leaders in tuned.leaders.items()}
    return tuned


def _network_s(states: Sequence[TaskState], ways: Ways) -> float:
    """Seconds of what ran so far, of what can be computed in several ways the fastest."""
    best = {s.task.hash: s.best_s for s in states if s.best_s is not None}
    return network_s({s.task: s.weight for s in states}, best, ways)


def _search(
    strategy: str,
    task: Task,
    measurer: DeviceMeasurer,
    seed: int,
    starts: Callable[[], Sequence[Program]],
) -> Evolution | TileSearch:
    if strategy == EVOLUTION:
        return Evolution(task, measurer, None, seed, starts)
    return TileSearch(strategy, task, measurer, seed, starts)


def _or_warning(propose: Callable[[], T]) -> T | None:
    """What a search proposes; a warning if TVM cannot generate the task's design space."""
    try:
        return propose()
    except WorkFailed as error:
        log.warning("%s", error)
        return None


def _expected_s(
    states: Sequence[TaskState], ways: Ways, library: ScheduleLibrary
) -> dict[str, float]:
    """Of each task of which others compute the same, if none of them ever ran."""
    competing = [(ways[s.task.hash][0], s) for s in states if s.task.hash in ways]
    ran = {what for what, state in competing if state.best is not None}
    return {s.task.hash: library.expected_s(s.task) for what, s in competing if what not in ran}


def _picked(
    states: Sequence[TaskState], ways: Ways, expected_s: Mapping[str, float]
) -> dict[str, Program]:
    """The model's choice for each task that never ran and that is the way taken then."""
    chosen = choose_fastest({s.task: s.weight for s in states}, expected_s, ways)

    def taken(state: TaskState) -> bool:
        what, way = ways.get(state.task.hash, (None, None))
        return (chosen.get(what) if what else None) == way

    untried = [state for state in states if state.best is None and taken(state)]
    if untried:
        log.info("choosing programs for %d tasks that nothing was measured of", len(untried))
    found = {state.task.hash: _or_warning(state.search.pick) for state in untried}
    return {task: program for task, program in found.items() if program is not None}


def _introduce(states: Sequence[TaskState], ways: Ways) -> None:
    """Tells each task its rivals."""
    competing = [(ways[s.task.hash], s) for s in states if s.task.hash in ways]
    for (what, way), state in competing:
        state.rivals = [s for other, s in competing if other[0] == what and other[1] != way]
