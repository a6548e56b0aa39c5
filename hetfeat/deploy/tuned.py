"""The second stage of a deployment: programs for its tasks, measured now or by another one."""

import dataclasses
import json
import logging
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.store import RecordStore
from hetfeat.deploy.lowered import Lowered
from hetfeat.deploy.request import REQUEST, DeployRequest, SourceModel
from hetfeat.durable import write_file
from hetfeat.measure.base import DeviceMeasurer
from hetfeat.measure.factory import measurer_of
from hetfeat.progress import At, progress, record, stage
from hetfeat.records import Program
from hetfeat.transfer.schedule_library import ScheduleLibrary
from hetfeat.tune.finalists import measure_finalists, select_finalists
from hetfeat.tune.scheduler import TaskState
from hetfeat.tune.session import BUDGETS, Budget, TuningProgress
from hetfeat.tune.tuner import OnRound, TuningOptions, TuningResult, tune
from hetfeat.workloads.convolution_variants import count_occurrences
from hetfeat.workloads.winograd.variants import network_s

if TYPE_CHECKING:
    from distributed import Client

log = logging.getLogger(__name__)

KERNELS_MS, TASKS, TUNING_S = "tuning/kernels_ms", "tuning/tasks", "tuning/seconds"
"""Figures of each round, by trials: what the fastest kernels so far add up to in milliseconds, the
number of tasks that they are of, and the wall time of tuning in seconds."""


@dataclass(frozen=True)
class Tuned:
    """The programs that a network is built of.

    Attributes:
        result: Outcome of tuning, the fastest program of each task chosen once more.
        cold_s: Latency in seconds with cold weights, by task hash, of what was measured once more.
        is_partial: Whether there is more to find: tuning ended early, or goes on elsewhere.
    """

    result: TuningResult
    cold_s: dict[str, float]
    is_partial: bool

    @property
    def expected_s(self) -> dict[str, float]:
        """Latency in seconds that decides between variants, by task hash."""
        return {**self.result.expected_s, **self.cold_s}


def tune_tasks(
    lowered: Lowered,
    source: SourceModel | None,
    journal: RecordStore,
    cluster: "Client | None" = None,
    picked: Mapping[str, Program] | None = None,
) -> Tuned:
    """Tunes within the budget of the request; what the journal holds is not measured again.

    Programs are built by the workers of a cluster, or here where there is none. The model's picks,
    by task hash, are made here where they are not known.
    """
    with journal.writing():
        _write_head(lowered, journal)
        budget = _budget(lowered.request, len(lowered.tasks))
        tuned = _tune(lowered, source, journal, budget, cluster, picked)
        journal.compact()
    if tuned.is_partial:
        log.info("interrupted: compiling with the best found so far")
    return tuned


def read_tuned(lowered: Lowered, source: SourceModel | None, journal: RecordStore) -> Tuned:
    """What a deployment has found so far, which may go on meanwhile: nothing is tuned."""
    tuned = _tune(lowered, source, journal, Budget(seconds=0, trials_per_task=0))
    return dataclasses.replace(tuned, is_partial=True)


def _tune(
    lowered: Lowered,
    source: SourceModel | None,
    journal: RecordStore,
    budget: Budget,
    cluster: "Client | None" = None,
    picked: Mapping[str, Program] | None = None,
) -> Tuned:
    with _measuring(lowered, journal, cluster) as measurer, progress(None, "program") as at:
        result = tune(
            list(lowered.weights.items()),
            measurer=measurer,
            journal=journal,
            budget=budget,
            options=TuningOptions(lowered.request.search, lowered.request.seed),
            model=source.model if source else None,
            library=_library(lowered),
            alternatives=lowered.alternatives,
            picked=picked,
            on_round=_on_round(at, lowered, budget, _best_s(lowered, journal)),
        )
    result, cold_s = _choose_cold(lowered, result, journal, cluster)
    return Tuned(result, cold_s, result.is_partial)


def _choose_cold(
    lowered: Lowered, result: TuningResult, journal: RecordStore, cluster: "Client | None"
) -> tuple[TuningResult, dict[str, float]]:
    """Measures the fastest few of each task once more, in new processes and with cold weights."""
    finalists = select_finalists(result.leaders, lowered.weights, lowered.alternatives)
    if not finalists:
        return result, {}
    log.info("%d of the fastest programs once more, with cold weights", len(finalists))
    try:
        with stage("measuring finalists"), _measuring(lowered, journal, cluster) as measurer:
            chosen, cold_s = measure_finalists(finalists, measurer)
    except KeyboardInterrupt:  # then as they were measured while tuning
        cold_s = {task: best.latency_s or 0.0 for task, best in result.best.items()}
        return dataclasses.replace(result, ended="interrupted"), cold_s
    fastest = {task: [measurement] for task, measurement in chosen.items()}
    return dataclasses.replace(result, leaders={**result.leaders, **fastest}), cold_s


@contextmanager
def _measuring(
    lowered: Lowered, journal: RecordStore, cluster: "Client | None"
) -> Iterator[DeviceMeasurer]:
    """New processes that know the tasks."""
    with measurer_of(lowered.profile, journal.path, cluster=cluster) as measurer:
        for task in lowered.tasks:
            measurer.add_task(task.task, lowered.workloads[task.task.hash])
        yield measurer


def _write_head(lowered: Lowered, journal: RecordStore) -> None:
    """Keeps in the journal what it is about."""
    journal.add_device(lowered.profile)
    for imported, tasks in zip(lowered.networks, lowered.tasks_of_each, strict=True):
        name = imported.network.name + (f"@{imported.batch}" if imported.batch > 1 else "")
        log.info("%s: %d tasks", name, len(tasks))
        weights = count_occurrences(tasks)
        journal.add_network(name, weights, {key: lowered.workloads[key] for key in weights})
    text = json.dumps(lowered.request.as_json(), indent=1) + "\n"
    write_file(journal.path / REQUEST, text.encode())


def _library(lowered: Lowered) -> ScheduleLibrary:
    """The packaged records, less this very device's of these tasks and of their anchors."""
    withheld = [task.task for task in lowered.tasks]
    packaged = RecordStore.open(packaged_store(lowered.profile.family))
    return ScheduleLibrary.of(packaged, lowered.profile.name, withheld)


def _budget(request: DeployRequest, tasks: int) -> Budget:
    budget = BUDGETS[request.effort]
    trials = budget.trials_per_task * tasks if request.trials is None else request.trials
    seconds = budget.seconds if request.minutes is None else 60 * request.minutes
    return dataclasses.replace(budget, trials=trials, seconds=min(seconds, budget.seconds))


def _best_s(lowered: Lowered, journal: RecordStore) -> dict[str, float]:
    """Lowest latency in seconds that the journal has of each task, by hash."""
    best_s: dict[str, float] = {}
    tasks = {task.task.hash for task in lowered.tasks}
    for table in journal.scan(["task", "latencies_s"], lowered.profile.name):
        for row in table.to_pylist():
            if row["latencies_s"] and row["task"] in tasks:
                latency_s = statistics.median(row["latencies_s"])
                best_s[row["task"]] = min(latency_s, best_s.get(row["task"], latency_s))
    return best_s


def _on_round(at: At, lowered: Lowered, budget: Budget, best_s: dict[str, float]) -> OnRound:
    """Says how far tuning has come, in trials, and what the kernels add up to.

    Args:
        at: Where to say it.
        lowered: Network that is tuned.
        budget: Budget of the tuning.
        best_s: Latency in seconds of tasks that were measured before, by hash; it is added to.
    """
    weights, alternatives = lowered.weights, lowered.alternatives

    def on_round(reached: TuningProgress, state: TaskState) -> None:
        if state.best and state.best.latency_s is not None:
            best_s[state.task.hash] = state.best.latency_s
        kernels_ms = 1e3 * network_s(weights, best_s, alternatives)
        left_s = max(0.0, budget.seconds - reached.seconds)
        tasks = f"{len(best_s)} of {len(weights)} tasks"
        note = f"{left_s:.0f} s left at most, {tasks}, kernels {kernels_ms:.2f} ms"
        resumed = reached.resumed
        at(reached.trials, f"{resumed} before, {note}" if resumed else note)
        figures = {KERNELS_MS: kernels_ms, TASKS: len(best_s), TUNING_S: reached.seconds}
        record(reached.trials + resumed, figures)

    return on_round
