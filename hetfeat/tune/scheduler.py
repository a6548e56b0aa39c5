"""Which task is tuned next: how far each has come, and what a round of it is expected to save."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hetfeat.records import Measurement, Task
from hetfeat.search.base import TaskSearch
from hetfeat.workloads.winograd.variants import Alternatives, choose_fastest, network_s

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SchedulerConfig:
    """How rounds are shared among tasks.

    Attributes:
        batch: Programs of a task measured in a row, which is also the floor that every task gets of
            which nothing else computes the same; 8 by default.
        leaders: Fastest measurements kept of each task; 3 by default.
        first_gain: Share of a task's latency that its second round is expected to save; 0.3 by
            default.
        gain_memory: Weight of what was expected before a round, beside what came of it, in what is
            expected of the next; 0.5 by default.
        least_gain: Share of the network's latency that the best next round must be expected to
            save, or tuning ends; 0.0002 by default.
        alternative_gain: Share of the latency of the fastest alternative that the first round of a
            task is expected to save; 0.15 by default, half of `first_gain`: of several ways the one
            that was expected to be faster was measured first.
        alternative_trials: Programs of a task before it may be given up for another that computes
            the same; 16 by default: most of what tuning gains comes early.
        alternative_margin: Factor on the latency of that other task above which it is given up;
            1.25 by default.
        unknown_latency_s: Latency, in seconds, of a task of which nothing has run yet; 1 by
            default, which is longer than most.
    """

    batch: int = 8
    leaders: int = 3
    first_gain: float = 0.3
    gain_memory: float = 0.5
    least_gain: float = 2e-4
    alternative_gain: float = 0.15
    alternative_trials: int = 16
    alternative_margin: float = 1.25
    unknown_latency_s: float = 1.0


class TaskState:
    """How far one task has come.

    Args:
        task: Task that is tuned.
        weight: Number of its occurrences in the network.
        search: Source of its candidates.
        config: Settings; those of `SchedulerConfig` by default.

    Attributes:
        leaders: Fastest measurements of the task, fastest first.
        trials: Number of programs measured.
        gain: Share of its latency that the next round is expected to save.
        exhausted: Whether no candidates are left.
        alternatives: Other tasks that compute the same: one of them will do.
    """

    def __init__(
        self,
        task: Task,
        weight: int,
        search: TaskSearch,
        config: SchedulerConfig = SchedulerConfig(),
    ) -> None:
        self.task, self.weight, self.search, self._config = task, weight, search, config
        self.leaders: list[Measurement] = []
        self.trials = 0
        self.gain = config.first_gain
        self.exhausted = False
        self.alternatives: list[TaskState] = []

    def tell(self, measurements: Sequence[Measurement]) -> None:
        """Takes measurements in, and what they saved into what is expected of the next."""
        before_s = self.best_s
        self.search.tell(measurements)
        self.trials += len(measurements)
        ran = [m for m in (*self.leaders, *measurements) if m.latency_s is not None]
        self.leaders = sorted(ran, key=lambda m: m.latency_s or 0.0)[: self._config.leaders]
        # A task of which nothing runs is without gain, too, or it would take the whole budget.
        if before_s is not None or self.best_s is None:
            saved = 1 - self.best_s / before_s if before_s and self.best_s else 0.0
            # Searches ask for one program to a whole batch at a time.
            kept = self._config.gain_memory ** (len(measurements) / self._config.batch)
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
        """Whether an alternative is so far ahead that this task will hardly be used."""
        if self.trials < self._config.alternative_trials:
            return False
        ahead_s = self.alternative_s
        if ahead_s is None or self.best_s is None:
            return ahead_s is not None
        return self.best_s > self._config.alternative_margin * ahead_s

    @property
    def alternative_s(self) -> float | None:
        """Latency in seconds of the fastest alternative that ran."""
        return min((s.best_s for s in self.alternatives if s.best_s is not None), default=None)

    @property
    def priority(self) -> tuple[bool, float]:
        """Untried tasks first, by FLOPs; then by the seconds that a round is expected to save.

        An untried task, an alternative of which ran, is not needed: it may save something, too.
        """
        if self.trials == 0 and self.alternative_s is None:
            return True, self.weight * self.task.flops
        if self.trials == 0:
            return False, self.weight * (self.alternative_s or 0.0) * self._config.alternative_gain
        latency_s = self._config.unknown_latency_s if self.best_s is None else self.best_s
        return False, self.weight * latency_s * self.gain


class Scheduler:
    """Chooses the task whose next round is expected to save most.

    Args:
        states: State of each task.
        alternatives: Convolution and tile of some tasks, by task hash: those that compute the same
            by different variants are alternatives.
        config: Settings; those of `SchedulerConfig` by default.
    """

    def __init__(
        self,
        states: Sequence[TaskState],
        alternatives: Alternatives,
        config: SchedulerConfig = SchedulerConfig(),
    ) -> None:
        self.states, self._alternatives, self._config = states, alternatives, config
        for state in self._with_alternatives():
            convolution, tile = alternatives[state.task.hash]
            others = [(*alternatives[s.task.hash], s) for s in self._with_alternatives()]
            state.alternatives = [s for c, t, s in others if c == convolution and t != tile]

    def next_task(self, busy: Collection[TaskState] = ()) -> TaskState | None:
        """The task to tune next; None where no round is worth its time.

        Args:
            busy: States of tasks that wait for a round's measurements already; none by default.
        """
        open_states = [
            s for s in self.states if not s.exhausted and not s.is_beaten and s not in busy
        ]
        if not open_states:
            return None
        state = max(open_states, key=lambda s: s.priority)
        untried, saving_s = state.priority
        if not untried and saving_s < self._config.least_gain * self.network_s():
            log.info("no round is expected to save %.2f %% any more", 100 * self._config.least_gain)
            return None
        return state

    def network_s(self) -> float:
        """Seconds of what ran so far, of what has several variants the fastest."""
        best_s = {s.task.hash: s.best_s for s in self.states if s.best_s is not None}
        return network_s(self._weights(), best_s, self._alternatives)

    def select_unmeasured(self, expected_s: Mapping[str, float]) -> list[TaskState]:
        """Tasks of which nothing ran, less those whose alternative ran or is expected to be taken.

        Args:
            expected_s: Expected latency in seconds, by task hash, where no alternative ran.
        """
        chosen = choose_fastest(self._weights(), expected_s, self._alternatives)

        def is_taken(state: TaskState) -> bool:
            convolution, tile = self._alternatives.get(state.task.hash, (None, None))
            return (chosen.get(convolution) if convolution else None) == tile

        return [
            state
            for state in self.states
            if state.best is None and state.alternative_s is None and is_taken(state)
        ]

    def select_without_evidence(self) -> list[TaskState]:
        """Tasks that have alternatives, where neither they nor any of those ever ran."""
        states = self._with_alternatives()
        ran = {self._alternatives[s.task.hash][0] for s in states if s.best is not None}
        return [s for s in states if self._alternatives[s.task.hash][0] not in ran]

    def _with_alternatives(self) -> list[TaskState]:
        return [state for state in self.states if state.task.hash in self._alternatives]

    def _weights(self) -> dict[Task, int]:
        return {state.task: state.weight for state in self.states}
