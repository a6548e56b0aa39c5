"""What choosing a program without measuring costs, and how many candidates it needs.

    python benchmarks/choosing.py [--network resnet18] [--tasks 12] [--candidates 64]

For each of the network's largest tasks the packaged model picks a program as `--trials 0` does, in
one process. Of the candidates that are applied, best ranked first, it prints at which place the one
stood that is scored best, and by how much less the best of fewer is scored, in standard deviations
of all scores. Seconds are of the processor, not of the clock: the machine may be busy.
"""

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from hetfeat.api.models import packaged_source
from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.probe import local_profile
from hetfeat.measure.child import Service
from hetfeat.measure.messages import AddTask, ApplyTraces, SamplePrograms, VaryPrograms
from hetfeat.measure.worker_pool import PoolOptions, _programs
from hetfeat.records import Program, Task
from hetfeat.schedules.registers import unit_of
from hetfeat.search.evolution import Evolution, EvolutionConfig
from hetfeat.transfer.schedule_library import ScheduleLibrary, warm_starts_of
from hetfeat.tune.guidance import ModelGuidance
from hetfeat.workloads.convolution_variants import extract_variant_tasks
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.relax import as_target, import_network, in_layout, save_workload
from hetfeat.workloads.winograd import TRANSFORMS

FEWER = (4, 8, 16, 24, 32, 48)


class Proposer:
    """A child's work in this process, its processor time by kind."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.seconds: dict[str, float] = defaultdict(float)
        self.applied: list[Program] = []

    def sample(self, task: Task, count: int, seed: int) -> list[Program]:
        """See `Proposer.sample`."""
        request = SamplePrograms(task=task.hash, count=count, seed=seed)
        return self._timed("sample", task, lambda: self.service.sample(request))

    def vary(self, task: Task, parents: list[str], count: int, seed: int) -> list[Program]:
        """See `Proposer.vary`."""
        request = VaryPrograms(task=task.hash, parents=parents, count=count, seed=seed)
        return self._timed("vary", task, lambda: self.service.vary(request))

    def apply(self, task: Task, traces: list[str]) -> list[Program]:
        """See `Proposer.apply`."""
        request = ApplyTraces(task=task.hash, traces=traces)
        self.applied = self._timed("apply", task, lambda: self.service.apply(request))
        return self.applied

    def _timed(self, kind: str, task: Task, work: Any) -> list[Program]:
        started = time.process_time()
        found = work()
        self.seconds[kind] += time.process_time() - started
        return _programs(task, found)


def lost_by_fewer(scores: Sequence[float]) -> list[float]:
    """Best of all less the best of the first few, over the deviation, for each of `FEWER`."""
    deviation = float(np.std(scores)) or 1.0
    return [(max(scores) - max(scores[:few])) / deviation for few in FEWER]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--candidates", type=int, default=64)
    given = parser.parse_args()
    profile = local_profile()
    _, source = packaged_source(profile.family)
    assert source is not None
    target = as_target(profile.target)
    prepared = in_layout(import_network(load_network(given.network)), target)
    tasks = extract_variant_tasks(prepared, target, TRANSFORMS)
    every = max(1, len(tasks) // given.tasks)
    guidance = ModelGuidance(source.model, profile, 0)
    records = RecordStore.open(packaged_store())
    library = ScheduleLibrary.of(records, profile.name, [task.task for task in tasks])
    config = EvolutionConfig(
        unmeasured_candidates=given.candidates, unmeasured_applied=given.candidates
    )
    print(
        "| task | seconds | sample | apply | vary | place | " + " | ".join(map(str, FEWER)) + " |"
    )
    print("| --- " * (6 + len(FEWER)) + "|")
    lost: list[list[float]] = []
    for network_task in tasks[::every]:
        task, proposer = network_task.task, Proposer(Service(PoolOptions().start(profile)))
        proposer.service.add_task(
            AddTask(task=task.hash, module=save_workload(network_task.module))
        )
        search = Evolution(
            task,
            proposer,
            0,
            guidance=guidance.for_task(task),
            warm_starts=partial(warm_starts_of, library, task, proposer),
            unit=unit_of(guidance.profile),
            config=config,
        )
        started = time.process_time()
        search.pick()
        seconds = time.process_time() - started
        if not proposer.applied:
            continue
        scores = guidance.score(task, proposer.applied).tolist()
        lost.append(lost_by_fewer(scores))
        parts = " | ".join(f"{proposer.seconds[kind]:.2f}" for kind in ("sample", "apply", "vary"))
        figures = " | ".join(f"{one:.2f}" for one in lost[-1])
        place = int(np.argmax(scores)) + 1
        print(
            f"| {task.operator} {task.shapes[:2]} | {seconds:.2f} "
            f"| {parts} | {place} | {figures} |",
            flush=True,
        )
    means = " | ".join(f"{statistics.mean(column):.2f}" for column in zip(*lost, strict=True))
    print(f"| mean | | | | | | {means} |")


if __name__ == "__main__":
    main()
