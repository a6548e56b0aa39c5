"""The network tuner: choose a task, propose, measure, record, refit."""

import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from hetfeat.dataset.store import RecordStore
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import WorkFailed
from hetfeat.measure.base import DeviceMeasurer
from hetfeat.measure.rounds import Rounds, rounds_of
from hetfeat.models.base import CostModel
from hetfeat.progress import stage
from hetfeat.records import Measurement, Program, Task
from hetfeat.schedules.registers import FLOAT32_BYTES, unit_of
from hetfeat.search.evolution import EvolutionConfig
from hetfeat.search.strategies import EVOLUTION
from hetfeat.search.task_search import make_task_search
from hetfeat.transfer.schedule_library import ScheduleLibrary, warm_starts_of
from hetfeat.tune.guidance import GuidanceConfig, ModelGuidance, refuse_source_at_chance
from hetfeat.tune.scheduler import Scheduler, SchedulerConfig, TaskState
from hetfeat.tune.session import Budget, Ended, Session, TuningProgress
from hetfeat.workloads.winograd.variants import Alternatives

T = TypeVar("T")

log = logging.getLogger(__name__)

OnRound = Callable[[TuningProgress, TaskState], None]
"""Called after each round with how far tuning has come, and with the task that was tuned."""


@dataclass(frozen=True)
class TuningOptions:
    """How a network is tuned.

    Attributes:
        strategy: Name of the search: evolution, the default, or one of tile spaces, which asks no
            model.
        seed: Seed of every draw; 0 by default.
        scheduler: Settings of what shares rounds among tasks; those of `SchedulerConfig` by
            default.
        guidance: Settings of what scores candidates; those of `GuidanceConfig` by default.
        evolution: Settings of the search, where it is evolution; those of `EvolutionConfig` by
            default.
    """

    strategy: str = EVOLUTION
    seed: int = 0
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    guidance: GuidanceConfig = field(default_factory=GuidanceConfig)
    evolution: EvolutionConfig = field(default_factory=EvolutionConfig)


@dataclass(frozen=True)
class TuningResult:
    """The outcome of tuning.

    Attributes:
        ended: Reason for the end: its budget was spent, the user stopped it, the device was lost,
            or no round was worth its time any more.
        leaders: Fastest few measurements of each task by hash, fastest first; a task that never
            ran is missing.
        picked: Programs that the model chose for tasks that never ran, by task hash.
        expected_s: Latency in seconds that is expected of each task that can be computed in
            several ways and never ran, by hash.
        trials: Number of programs measured in this run.
        resumed: Number of programs that the journal held already.
        failed: Number of measured programs without a latency, in this run.
        seconds: Wall time in seconds, that of earlier runs on these tasks with the same journal
            included.
        earlier_s: Wall time of those earlier runs, in seconds.
    """

    ended: Ended
    leaders: Mapping[str, Sequence[Measurement]]
    picked: Mapping[str, Program]
    expected_s: Mapping[str, float]
    trials: int
    resumed: int
    failed: int
    seconds: float
    earlier_s: float

    @property
    def best(self) -> dict[str, Measurement]:
        """Fastest measurement of each task by hash; a task that never ran is missing."""
        return {task: leaders[0] for task, leaders in self.leaders.items()}

    @property
    def is_partial(self) -> bool:
        """Whether it ended before its budget: by the user, or because the device was lost."""
        return self.ended in ("interrupted", "device_lost")


def tune(
    tasks: Sequence[tuple[Task, int]],
    *,
    measurer: DeviceMeasurer,
    journal: RecordStore,
    budget: Budget,
    options: TuningOptions = TuningOptions(),
    model: CostModel | None = None,
    library: ScheduleLibrary | None = None,
    alternatives: Alternatives | None = None,
    picked: Mapping[str, Program] | None = None,
    on_round: OnRound | None = None,
) -> TuningResult:
    """Tunes tasks within a budget; `_Tuning.run` says how.

    A model's picks are measured before anything else: no kernel ends behind its pick, however few
    programs a slow machine measures.

    Args:
        tasks: Tasks, known to the measurer, each with the number of its occurrences.
        measurer: Device that proposes and measures programs.
        journal: Store that keeps the measurements; what it holds is not measured again.
        budget: Trials and seconds that may be spent.
        options: Strategy, seed and settings; those of `TuningOptions` by default.
        model: Cost model to start from, fine-tuned as measurements come in; without one by
            default.
        library: Fast programs of other tasks and devices, tried first where they fit; empty by
            default.
        alternatives: Convolution and tile of some tasks, by hash, of which one will do; none by
            default. Where none was measured, the library's expectation decides, and how large their
            weights are.
        picked: The model's picks where they are known already, by task hash; None, the default, to
            pick them here.
        on_round: Function called after each round; none by default.

    Returns:
        The fastest programs, and the model's picks; without these after an early end.
    """
    profile, library = measurer.profile, library or ScheduleLibrary(())
    # A source at chance is no use, but where nothing is measured it is all there is.
    source = refuse_source_at_chance(model) if budget.trials else model
    guidance = ModelGuidance(source, profile, options.seed, options.guidance)
    states = _start(tasks, measurer, library, guidance, options)
    session = Session(journal, profile.name, [task for task, _ in tasks], budget)
    scheduler = Scheduler(states, alternatives or {}, options.scheduler)
    rounds = rounds_of(measurer)
    tuning = _Tuning(
        rounds,
        measurer.for_each,
        session,
        scheduler,
        guidance,
        options.scheduler.batch,
        on_round,
        [],
    )
    tuning.resume()
    expected_s: dict[str, float] = {}
    unmeasured: dict[str, Program] = {}

    def choose() -> tuple[dict[str, float], dict[str, Program]]:
        """What is expected of the ways that nothing ran of, and the model's picks."""
        if guidance.model is None:
            return {}, {}
        expected_s = _expect(scheduler.select_without_evidence(), library, profile)
        return expected_s, _pick(scheduler.select_unmeasured(expected_s), measurer)

    with session.kept_when_interrupted(), contextlib.ExitStack() as stack:
        stack.callback(rounds.stop)
        if session.trials_left and not session.progress().resumed:
            tuning.begin_with(choose()[1] if picked is None else picked)
        tuning.run()
        expected_s, unmeasured = choose()
    leaders = {state.task.hash: state.leaders for state in states if state.leaders}
    return TuningResult(session.ended, leaders, unmeasured, expected_s, **vars(session.progress()))


@dataclass(frozen=True)
class _Asked:
    """Programs that a task is asked for."""

    state: TaskState
    count: int


@dataclass(frozen=True)
class _Round:
    """Programs of a task that are being measured, and what is known of them."""

    state: TaskState
    programs: Sequence[Program]
    done: list[Measurement]

    @property
    def open(self) -> int:
        """Programs that nothing is known of."""
        return len(self.programs) - len(self.done)


@dataclass(frozen=True)
class _Tuning:
    """The loop; `told` has the measurements in the order in which the searches were told."""

    rounds: Rounds
    for_each: Callable[..., list[Sequence[Program]]]
    session: Session
    scheduler: Scheduler
    guidance: ModelGuidance
    batch: int
    on_round: OnRound | None
    told: list[Measurement]

    def resume(self) -> None:
        """Tells of what the journal holds, in batches as they came, for the gains to be alike."""
        self.told.extend(self.session.measurements)
        self.guidance.add_to_support_sets(self.told)
        self._learn()
        for state in self.scheduler.states:
            measured = self.session.measured_of(state.task)
            for start in range(0, len(measured), self.batch):
                state.tell(measured[start : start + self.batch])

    def begin_with(self, picked: Mapping[str, Program]) -> None:
        """Measures a program of each task, by hash, all in one round; those of most FLOPs first."""
        given = [state for state in self.scheduler.states if state.task.hash in picked]
        given.sort(key=lambda state: -state.weight * state.task.flops)
        flying = [_Round(s, [picked[s.task.hash]], []) for s in given[: self.session.trials_left]]
        if not flying:
            return
        self.rounds.begin([program for each in flying for program in each.programs], {})
        try:
            for each in flying:
                self._measure(each, flying)
        finally:
            for each in flying:
                self._tell(each)
        if self.on_round:
            for each in flying:
                self.on_round(self.session.progress(), each.state)

    def run(self) -> None:
        """Tunes round after round.

        The scheduler chooses the task whose next round is expected to save most. The task's search
        proposes a batch of programs. Each is measured, and is in the journal before the next. The
        task, its search and the support sets are told; now and then the guidance learns from
        everything measured so far. This ends when the budget is spent, or when no round is worth
        its time.

        Where others build, rounds of several tasks are begun before the first is measured. They are
        told of in the order in which they began, whatever came first: a seed gives the same rounds.
        """
        flying: deque[_Round] = deque()
        try:
            while True:
                if len(flying) <= self.rounds.at_once // 2:
                    flying.extend(self._begin(flying))
                if not flying:
                    return
                self._measure(flying[0], flying)
                done = flying.popleft()
                self._tell(done)
                self._learn()
                if self.on_round:
                    self.on_round(self.session.progress(), done.state)
        finally:  # what came before an interrupt counts, too
            for interrupted in flying:
                self._tell(interrupted)

    def _begin(self, flying: Sequence[_Round]) -> list[_Round]:
        """The next rounds, which are being built from now on; none where there are none so far."""
        trials_left = self.session.trials_left - sum(each.open for each in flying)
        asked: list[_Asked] = []
        while len(flying) + len(asked) < self.rounds.at_once and trials_left > 0:
            busy = [each.state for each in flying] + [each.state for each in asked]
            if (state := self.scheduler.next_task(busy)) is None:
                if not busy:
                    self.session.ended = "exhausted"
                break
            asked.append(_Asked(state, min(self.batch, trials_left)))
            trials_left -= self.batch
        with stage("proposing"):  # a child for each task, or all of them for one
            proposed = self.for_each(_propose, asked) if len(asked) > 1 else map(_propose, asked)
            programs = list(proposed)
        return [self._launch(*each) for each in zip(asked, programs, strict=True)]

    def _launch(self, asked: _Asked, programs: Sequence[Program]) -> _Round:
        state = asked.state
        incumbent_s = {} if state.best_s is None else {state.task.hash: state.best_s}
        self.rounds.begin(programs, incumbent_s)
        return _Round(state, programs, [])

    def _measure(self, awaited: _Round, flying: Sequence[_Round]) -> None:
        """Measures until one of the rounds is whole; of others comes what comes."""
        of_task = {each.state.task.hash: each for each in flying}
        with stage("measuring"):
            while awaited.open:
                measurement = self.rounds.next()
                self.session.record(measurement)
                of_task[measurement.program.task.hash].done.append(measurement)

    def _tell(self, measured: _Round) -> None:
        """Tells the search and the support sets, in the order in which programs were proposed."""
        place = {program.key: i for i, program in enumerate(measured.programs)}
        done = sorted(measured.done, key=lambda m: place[m.program.key])
        measured.state.tell(done)
        self.guidance.add_to_support_sets(done)
        self.told.extend(done)
        self.session.save_time_spent()

    def _learn(self) -> None:
        """Lets the guidance learn when it is due, where a search asks it."""
        if any(state.search.is_guided for state in self.scheduler.states):
            self.guidance.learn_when_due(self.told)


def _start(
    tasks: Sequence[tuple[Task, int]],
    measurer: DeviceMeasurer,
    library: ScheduleLibrary,
    guidance: ModelGuidance,
    options: TuningOptions,
) -> list[TaskState]:
    """A search for each task, which has been told of nothing so far."""
    states = []
    for task, weight in tasks:
        search = make_task_search(
            options.strategy,
            task,
            measurer,
            options.seed,
            guidance=guidance.for_task(task),
            warm_starts=partial(warm_starts_of, library, task, measurer),
            unit=unit_of(measurer.profile),
            evolution=options.evolution,
        )
        states.append(TaskState(task, weight, search, options.scheduler))
    return states


def _propose(asked: _Asked) -> Sequence[Program]:
    """Programs of a task, which is exhausted where there are none."""
    programs = _or_warning(partial(asked.state.search.ask, asked.count)) or []
    asked.state.exhausted = not programs
    return programs


def _or_warning(propose: Callable[[], T]) -> T | None:
    """What a search proposes; a warning if TVM cannot generate the task's design space."""
    try:
        return propose()
    except WorkFailed as error:
        log.warning("%s", error)
        return None


def _expect(
    states: Sequence[TaskState], library: ScheduleLibrary, profile: DeviceProfile
) -> dict[str, float]:
    """Latencies in seconds that the library lets expect, by task hash.

    None is shorter than its weights take to be read: a network's are in no cache, those that the
    library's programs were measured with are.
    """
    bytes_per_s = 1e9 * (profile.bandwidth_gb_s or math.inf)
    expected_s = {}
    for task in (state.task for state in states):
        weights_s = FLOAT32_BYTES * math.prod(task.shapes[1]) / bytes_per_s
        expected_s[task.hash] = max(library.expected_s(task), weights_s)
    return expected_s


def _pick(states: Sequence[TaskState], measurer: DeviceMeasurer) -> dict[str, Program]:
    """The model's choice for each task, by hash; of several tasks at once."""
    if states:
        log.info("choosing programs for %d tasks that nothing was measured of", len(states))
    picks = measurer.for_each(lambda state: _or_warning(state.search.pick), states)
    named = zip((state.task.hash for state in states), picks, strict=True)
    return {task: program for task, program in named if program is not None}
