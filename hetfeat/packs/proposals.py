"""Which programs of a task go into a pack: near the fastest known, and random ones."""

import random
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from hetfeat.dataset.store import RecordStore
from hetfeat.records import Program, Task

Measured = Mapping[str, float | None]
"""Latency in seconds by trace, None for a failure."""


class Draws(Protocol):
    """What draws programs of a task: `measure.worker_pool.WorkerPool`."""

    def sample(self, task: Task, count: int, seed: int) -> list[Program]:
        """Up to `count` distinct random programs."""

    def vary(self, task: Task, parents: list[str], count: int, seed: int) -> list[Program]:
        """Up to `count` distinct programs near the traces `parents`."""


@dataclass(frozen=True)
class ProposalConfig:
    """How a pack's programs are drawn.

    Attributes:
        random_share: Share of a task's programs drawn at random where others vary fast ones; 0.25
            by default.
        parents: Fastest programs of a task that are varied; 6 by default.
        spare: Multiple of the programs wanted that is drawn, as some are known; 1.5 by default.
    """

    random_share: float = 0.25
    parents: int = 6
    spare: float = 1.5


def propose(
    draws: Draws,
    task: Task,
    count: int,
    seed: int,
    measured: Measured,
    config: ProposalConfig = ProposalConfig(),
) -> list[Program]:
    """Up to `count` programs of a task that nobody has measured.

    Args:
        draws: Source of programs, which knows the task.
        task: Task of the programs.
        count: Number of programs that are wanted.
        seed: Seed of the draw; another number of programs measured gives another draw.
        measured: What is known of the task's programs.
        config: Shares; those of `ProposalConfig` by default.
    """
    draw = random.Random(f"{seed} {task.hash} {len(measured)}").randrange(2**20)
    latency_s = {trace: s for trace, s in measured.items() if s is not None}
    fastest = sorted(latency_s, key=latency_s.__getitem__)[: config.parents]
    found: dict[str, Program] = {}

    def add(programs: list[Program], most: int) -> None:
        for program in programs:
            if len(found) < most and program.trace not in measured:
                found.setdefault(program.trace, program)

    varied = round((1 - config.random_share) * count) if fastest else 0
    if varied:
        add(draws.vary(task, fastest, round(config.spare * varied), draw), varied)
    if missing := count - len(found):
        add(draws.sample(task, round(config.spare * missing) + 1, draw), count)
    return list(found.values())


def load_measured(store: RecordStore, device: str) -> dict[str, dict[str, float | None]]:
    """What a store knows of a device's programs, by task hash."""
    measured: dict[str, dict[str, float | None]] = {}
    for table in store.scan(["task", "trace", "latencies_s"], device):
        for row in table.to_pylist():
            latencies_s = row["latencies_s"]
            of_task = measured.setdefault(row["task"], {})
            of_task[row["trace"]] = statistics.median(latencies_s) if latencies_s else None
    return measured
