"""How the time to tune grows with the number of tasks.

    python benchmarks/growth.py --out DIR [--network inception_v3] [--model DIR]
        [--tasks 6,12,24,48] [--trials-per-task 16]

Tunes parts of a network's tasks, evenly chosen by their FLOPs, with as many programs for each:
from the smallest part to the largest and back, so that a machine that changes meets all alike.
Convolutions are computed directly. Nothing else may run.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from search import table
from transfer_pairs import Network

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.probe import local_profile
from hetfeat.models.registry import load_model
from hetfeat.transfer.schedule_library import ScheduleLibrary
from hetfeat.tune.session import Budget
from hetfeat.tune.tuner import tune
from hetfeat.workloads.relax import NetworkTask


def part_of(tasks: Sequence[NetworkTask], count: int) -> list[NetworkTask]:
    """As many tasks, evenly chosen by their FLOPs."""
    ordered = sorted(tasks, key=lambda task: task.task.flops)
    return [ordered[place * len(ordered) // count] for place in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--network", default="inception_v3")
    parser.add_argument("--model", type=Path, help="a cost model's folder, else from scratch")
    parser.add_argument("--tasks", default="6,12,24,48")
    parser.add_argument("--trials-per-task", type=int, default=16)
    given = parser.parse_args()
    counts = sorted(int(count) for count in given.tasks.split(","))
    network = Network(given.network, local_profile())
    if not 0 < counts[0] <= counts[-1] <= len(network.tasks):
        most = len(network.tasks)
        raise SystemExit(f"--tasks {given.tasks}: give counts of 1 to {most}, what it has")
    given.out.mkdir(parents=True)
    store = RecordStore.open(packaged_store())
    took: dict[int, list[tuple[float, float, int]]] = {count: [] for count in counts}
    for number, count in enumerate(counts + counts[::-1]):
        tasks = part_of(network.tasks, count)
        model = load_model(given.model) if given.model else None
        library = ScheduleLibrary.of(store, network.profile.name, [task.task for task in tasks])
        journal = RecordStore.create(given.out / f"{number}-{count}")
        journal.add_device(network.profile)
        with network.measurer() as measurer:
            started, own_s = time.monotonic(), time.process_time()
            tuned = tune(
                [(task.task, task.weight) for task in tasks],
                measurer=measurer,
                journal=journal,
                budget=Budget(math.inf, 0, given.trials_per_task * count),
                model=model,
                library=library,
            )
            row = time.monotonic() - started, time.process_time() - own_s, tuned.trials
        took[count].append(row)
        print(f"{count} tasks: {row[2]} programs in {row[0]:.1f} s", file=sys.stderr)
    rows = []
    for count, runs in took.items():
        seconds, own_s, programs = (statistics.mean(values) for values in zip(*runs, strict=True))
        each = [f"{1e3 * s / n:.0f}" for s, _, n in runs]
        rows.append(
            [str(count), f"{programs:.0f}", f"{seconds:.0f}", f"{own_s:.0f}", ", ".join(each)]
        )
    head = ["tasks", "programs", "s", "the tuner's own CPU s", "ms a program, by run"]
    print(table(head, rows))


if __name__ == "__main__":
    main()
