"""TVM's own tuner on a network, its whole budget, and what it had found on the way.

    python benchmarks/stock_tuner.py --network resnet50 --out DIR [--trials-per-task 64] [--capped]

`tune_relax` with its defaults but for the builder's time-out: its builder, runner, XGBModel,
evolutionary search and gradient scheduler, on the graph that `deploy` compiles (convolutions
computed directly), with the threads of this machine's profile. `--measurer ours` gives the same
search our persistent builder and runner; `--capped` gives no task more than its own trials, where
the scheduler would give it what others leave.
Nothing else may run: it takes the best part of an hour. DIR/found.json.gz then holds the fastest
trace of each task after 25, 50 and 100 % of the time, for `time_to_quality.py` to measure again.
"""

import argparse
import gzip
import json
import math
import os
import re
import sys
from collections import Counter
from contextlib import ExitStack
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hetfeat.devices.probe import local_profile

SHARES = (0.25, 0.5, 1.0)
LOGGED = re.compile(
    r"(?P<at>\S+ \S+) \[INFO\] \[task_scheduler\.cc:\d+\] "
    r"(Sending (?P<sent>\d+) sample\(s\) to builder|TaskScheduler picks Task #(?P<picked>\d+)"
    r"|Task #\d+ has finished)"
)
"""A round starts by picking its task and ends with the next pick, or with the first task's end."""
BUILD_TIMEOUT_S = 120.0
"""Instead of 30: a worker takes 25 to 30 s to import TVM, is killed for silence, and its successor
imports again."""
FAILED_S = 1e9
"""TVM gives failed programs a latency of 1e10 s."""


def rounds(logs: Path) -> list[tuple[float, int, int]]:
    """Of each round of the search: when it ended in seconds, its task's number, its programs.

    From TVM's log: its database gets a task's programs when the scheduler comes to the task again,
    after all the others, although they have long been measured.
    """
    lines = (logs / "tvm.s_tir.meta_schedule.logging.task_scheduler.log").read_text().splitlines()
    found: list[tuple[float, int, int]] = []
    task, sent, started = -1, 0, None
    for line in lines:
        if not (said := LOGGED.match(line)):
            continue
        now = datetime.fromisoformat(said["at"])
        started = started or now
        if said["sent"]:
            sent = int(said["sent"])
        elif sent:
            found.append(((now - started).total_seconds(), task, sent))
            sent = 0
        task = int(said["picked"] or task)
    return found


def fastest(out: Path, by_s: float) -> tuple[int, dict[str, tuple[float, str]]]:
    """Programs measured by then; latency and trace of the fastest of each task, by its hash."""
    from hetfeat.schedules.trace import dump
    from hetfeat.workloads.relax import describe, load_workload

    counted = Counter()
    for ended_s, task, programs in rounds(out / "logs"):
        counted[task] += programs * (ended_s <= by_s)
    trials = counted.total()
    lines = (out / "database_workload.json").read_text().splitlines()
    tasks = [describe(load_workload(json.loads(line)[1])).hash for line in lines]
    best: dict[str, tuple[float, str]] = {}
    for line in (out / "database_tuning_record.json").read_text().splitlines():
        task, (trace, seconds, *_) = json.loads(line)
        latency_s = sum(seconds) / len(seconds)
        counted[task] -= 1
        if counted[task] >= 0 and latency_s < min(FAILED_S, best.get(tasks[task], (math.inf,))[0]):
            best[tasks[task]] = latency_s, dump(trace)
    return trials, best


def summarise(out: Path, facts: dict[str, object]) -> None:
    """Writes found.json.gz from what TVM's tuner has left."""
    end_s = rounds(out / "logs")[-1][0]
    found = []
    for share in SHARES:
        trials, tasks = fastest(out, share * end_s)
        found.append({"share": share, "seconds": share * end_s, "trials": trials, "tasks": tasks})
        print(f"{share:.0%}: {share * end_s:.0f} s, {trials} trials, {len(tasks)} tasks")
    with gzip.GzipFile(out / "found.json.gz", "wb", mtime=0) as file:
        file.write(json.dumps({**facts, "found": found}).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="resnet50")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trials-per-task", type=int, default=64)
    parser.add_argument("--capped", action="store_true")
    parser.add_argument("--measurer", choices=("stock", "ours"), default="stock")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()

    profile = local_profile()
    os.environ["TVM_NUM_THREADS"] = str(profile.threads)  # before TVM makes its thread pool
    import tvm.s_tir.meta_schedule as ms

    from hetfeat.workloads.networks import load_network
    from hetfeat.workloads.relax import as_target, extract_tasks, import_network, lower

    target = as_target(profile.target)
    lowered = lower(import_network(load_network(given.network)), target)
    tasks = extract_tasks(lowered, target)
    given.out.mkdir(parents=True)
    with ExitStack() as stack:
        if given.measurer == "ours":
            from stock_measurer import builder_and_runner

            parts = stack.enter_context(builder_and_runner(profile))
        else:
            parts = {"builder": ms.builder.LocalBuilder(timeout_sec=BUILD_TIMEOUT_S)}
        ms.relax_integration.tune_relax(
            lowered,
            {},
            target,
            str(given.out),
            max_trials_global=given.trials_per_task * len(tasks),
            max_trials_per_task=given.trials_per_task if given.capped else None,
            seed=given.seed,
            **parts,
        )
    facts = {
        "network": given.network,
        "device": profile.name,
        "measurer": given.measurer,
        "tvm": version("apache-tvm"),
        "seed": given.seed,
        "tasks": len(tasks),
        "trials_per_task": given.trials_per_task,
        "capped": given.capped,
    }
    summarise(given.out, facts)


if __name__ == "__main__":
    main()
