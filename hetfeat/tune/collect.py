"""Measures programs of real networks into a record store."""

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from hetfeat.dataset.store import RecordStore
from hetfeat.measure.local import LocalMeasurer
from hetfeat.records import Program, Task

BATCH = 16
RANDOM_SHARE = 0.5
"""Programs of a task drawn at random; the rest are variations of its best so far. A model that
has seen only random programs cannot rank good ones."""
PARENTS = 4


@dataclass
class Progress:
    """What collecting has done so far, in this run and, for `known`, before it."""

    programs: int = 0
    failed: int = 0
    tasks: int = 0
    known: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Wall time of this run."""
        return time.monotonic() - self.started


@dataclass
class _TaskState:
    """Programs of one task that are in the store."""

    keys: set[str]
    latency_s: dict[str, float]

    def best(self) -> list[str]:
        """The fastest traces."""
        return sorted(self.latency_s, key=self.latency_s.__getitem__)[:PARENTS]


def collect(
    store: RecordStore,
    measurer: LocalMeasurer,
    tasks: Iterable[Task],
    programs_per_task: int,
    seed: int,
) -> Iterable[Progress]:
    """Measures until every task has `programs_per_task` programs, or no more are found.

    Every measurement is in the store before the next is made; what the store holds already is
    not measured again, so an interrupted run goes on where it was.

    Yields:
        The progress, after each measurement.
    """
    progress = Progress()
    states = _states(store, measurer.profile.name)
    for task in tasks:
        state = states.setdefault(task.hash, _TaskState(set(), {}))
        progress.known += len(state.keys)
        while len(state.keys) < programs_per_task:
            wanted = min(BATCH, programs_per_task - len(state.keys))
            batch = _propose(measurer, task, state, wanted, programs_per_task, seed)
            if not batch:
                break  # a small design space: there are no more programs
            incumbent = {task.hash: min(state.latency_s.values(), default=float("inf"))}
            for measurement in measurer.measure_each(batch, incumbent):
                store.append([measurement])
                state.keys.add(measurement.program.key)
                if measurement.latency_s is None:
                    progress.failed += 1
                else:
                    state.latency_s[measurement.program.trace] = measurement.latency_s
                progress.programs += 1
                yield progress
        progress.tasks += 1
        yield progress


def _propose(
    measurer: LocalMeasurer,
    task: Task,
    state: _TaskState,
    wanted: int,
    programs_per_task: int,
    seed: int,
) -> list[Program]:
    draw = random.Random(f"{seed} {task.hash} {len(state.keys)}").randrange(2**20)
    found: list[Program] = []
    if len(state.keys) >= RANDOM_SHARE * programs_per_task and state.latency_s:
        found = measurer.vary(task, state.best(), 2 * wanted, draw)
    fresh = [program for program in found if program.key not in state.keys]
    if len(fresh) < wanted:
        more = measurer.sample(task, 2 * wanted, draw)
        keys = state.keys | {program.key for program in fresh}
        fresh += [program for program in more if program.key not in keys]
    return fresh[:wanted]


def _states(store: RecordStore, device: str) -> dict[str, _TaskState]:
    states: dict[str, _TaskState] = {}
    for table in store.scan(["task", "program", "trace", "latencies_s"], device):
        for row in table.to_pylist():
            state = states.setdefault(row["task"], _TaskState(set(), {}))
            state.keys.add(row["program"])
            if row["latencies_s"]:
                state.latency_s[row["trace"]] = min(row["latencies_s"])
    return states
