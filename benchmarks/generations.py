"""What it is worth to let the model judge generations, or drafts, before programs are measured.

    python benchmarks/generations.py --ways 0,0 3,1 drafts [--network resnet18] [--tasks 8]

`3,1` is three generations before the first round and one before each later, each candidate applied;
`drafts` are unapplied traces, mutated and ranked by the model, of which only the best are applied.
For the tasks of a network with the most FLOPs, each of these searches anew, in random order: rounds
of 8 programs, measured on this machine. Printed is the best latency after each round against the
best that any of them found, as a geometric mean over the tasks, and the seconds spent on proposing
and on measuring. The model is the family's in production; nothing else may run.
"""

import argparse
import random
import statistics
import sys
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.probe import local_profile
from hetfeat.devices.profile import DeviceProfile
from hetfeat.measure.local import LocalMeasurer
from hetfeat.models.registry import load_model
from hetfeat.records import Task
from hetfeat.search.base import FixedGuidance
from hetfeat.search.evolution import Evolution, EvolutionConfig
from hetfeat.transfer.schedule_library import ScheduleLibrary, warm_starts_of
from hetfeat.tune.guidance import ModelGuidance
from hetfeat.tune.scheduler import SchedulerConfig
from hetfeat.workloads.convolution_variants import extract_variant_tasks
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.relax import NetworkTask, as_target, import_network, in_layout, save_workload
from hetfeat.workloads.winograd import TRANSFORMS
from registry.files.pull import pull
from registry.models.names import cost_model_name


def largest(network: str, profile: DeviceProfile, count: int | None = None) -> list[NetworkTask]:
    """Tasks of a network, each convolution in every way, the most FLOPs first; at most `count`."""
    target = as_target(profile.target)
    prepared = in_layout(import_network(load_network(network, 1, 0)), target)
    tasks = extract_variant_tasks(prepared, target, TRANSFORMS)
    return sorted(tasks, key=lambda task: -task.weight * task.task.flops)[:count]


def search(
    task: Task,
    measurer: LocalMeasurer,
    guidance: ModelGuidance,
    generations: tuple[int, int] | None,
    library: ScheduleLibrary,
    seed: int,
    rounds: int,
) -> tuple[list[float], float, float]:
    """Best latency after each round, seconds of proposing, seconds of measuring.

    Without generations unapplied traces are mutated.
    """
    warm_starts = partial(warm_starts_of, library, task, measurer)
    asked = guidance.for_task(task)
    if generations:
        asked = FixedGuidance(asked.score, exploration=asked.exploration)
    config = EvolutionConfig(generations=generations or (0, 0))
    running = Evolution(
        task, measurer, seed, guidance=asked, warm_starts=warm_starts, config=config
    )
    best, curve, proposing_s, measuring_s = float("inf"), [], 0.0, 0.0
    for _ in range(rounds):
        began = time.monotonic()
        batch = running.ask(SchedulerConfig().batch)
        proposed = time.monotonic()
        done = measurer.measure(batch, {} if best == float("inf") else {task.hash: best})
        running.tell(done)
        best = min([best, *(m.latency_s for m in done if m.latency_s is not None)])
        curve.append(best)
        proposing_s += proposed - began
        measuring_s += time.monotonic() - proposed
    return curve, proposing_s, measuring_s


def way(text: str) -> tuple[int, int] | None:
    """`3,1` as numbers; None for `drafts`."""
    if text == "drafts":
        return None
    first, later = text.split(",")
    return int(first), int(later)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--ways", type=way, nargs="+", default=[(0, 0), (3, 1), None])
    options.add_argument("--network", default="resnet18")
    options.add_argument("--model", type=Path, help="its folder, else the family's in production")
    options.add_argument("--tasks", type=int, default=8)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    profile = local_profile()
    folder = given.model or pull(f"{cost_model_name(profile.family)}@production").folder
    model = load_model(folder)
    guidance = ModelGuidance(model, profile, given.seed)
    tasks = largest(given.network, profile, given.tasks)
    store = RecordStore.open(packaged_store())
    library = ScheduleLibrary.of(store, profile.name, [task.task for task in tasks])
    order = random.Random(given.seed)
    excess: dict[tuple[int, int] | None, list[list[float]]] = defaultdict(list)
    seconds: dict[tuple[int, int] | None, list[tuple[float, float]]] = defaultdict(list)
    with LocalMeasurer(profile) as measurer:
        for task in tasks:
            measurer.add_task(task.task, save_workload(task.module))
            curves = {}
            for count in order.sample(given.ways, len(given.ways)):
                found = search(
                    task.task, measurer, guidance, count, library, given.seed, given.rounds
                )
                curves[count], spent = found[0], found[1:]
                seconds[count].append(spent)
            best = min(curve[-1] for curve in curves.values())
            for count, curve in curves.items():
                excess[count].append([latency / best for latency in curve])
            print(task.task.operator, task.task.shapes, curves, file=sys.stderr)
    for count in given.ways:
        means = [statistics.geometric_mean(column) for column in zip(*excess[count], strict=True)]
        spent = [sum(column) for column in zip(*seconds[count], strict=True)]
        print(
            f"{count[0]}, then {count[1]} generations:" if count else "drafts:",
            *(f"{mean:.3f}" for mean in means),
            f"after each round; {spent[0]:.0f} s proposing, {spent[1]:.0f} s measuring",
        )


if __name__ == "__main__":
    main()
