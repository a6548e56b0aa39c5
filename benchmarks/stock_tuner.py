"""TVM's own tuner on a network, its whole budget, and what it had found on the way.

    python benchmarks/stock_tuner.py --network resnet50 --out DIR [--trials-per-task 64]

`tune_relax` with its defaults: its builder, runner, XGBModel, evolutionary search and gradient
scheduler, on the graph that `deploy` compiles (convolutions computed directly), with the threads of
this machine's profile. `--measurer ours` gives the same search our persistent builder and runner.
Nothing else may run: it takes the best part of an hour. DIR/found.json.gz then holds the fastest
trace of each task after 25, 50 and 100 % of the time, for `time_to_quality.py` to measure again.
"""

import argparse
import gzip
import json
import math
import os
import sys
import threading
import time
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hetfeat.devices.probe import local_profile

SHARES = (0.25, 0.5, 1.0)
EVERY_S = 2.0
FAILED_S = 1e9
"""TVM gives failed programs a latency of 1e10 s."""


class Watch(threading.Thread):
    """Notes how many records the database holds, again and again."""

    def __init__(self, records: Path) -> None:
        super().__init__(daemon=True)
        self.records, self.started, self.done = records, time.monotonic(), threading.Event()
        self.seen: list[tuple[float, int]] = []

    def run(self) -> None:
        while not self.done.wait(EVERY_S):
            self.note()

    def note(self) -> None:
        lines = self.records.read_bytes().count(b"\n") if self.records.exists() else 0
        self.seen.append((time.monotonic() - self.started, lines))

    def at(self, share: float) -> tuple[float, int]:
        """Seconds and records after a share of the time."""
        end_s = self.seen[-1][0]
        return max(seen for seen in self.seen if seen[0] <= share * end_s)


def fastest(out: Path, records: int) -> dict[str, tuple[float, str]]:
    """By task hash: latency and trace of the fastest of the first records."""
    from hetfeat.schedules.trace import dump
    from hetfeat.workloads.tvm import describe, load_workload

    lines = (out / "database_workload.json").read_text().splitlines()
    tasks = [describe(load_workload(json.loads(line)[1])).hash for line in lines]
    best: dict[str, tuple[float, str]] = {}
    for line in (out / "database_tuning_record.json").read_text().splitlines()[:records]:
        task, (trace, seconds, *_) = json.loads(line)
        latency_s = sum(seconds) / len(seconds)
        if latency_s < min(FAILED_S, best.get(tasks[task], (math.inf, ""))[0]):
            best[tasks[task]] = latency_s, dump(trace)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="resnet50")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trials-per-task", type=int, default=64)
    parser.add_argument("--measurer", choices=("stock", "ours"), default="stock")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()

    profile = local_profile()
    os.environ["TVM_NUM_THREADS"] = str(profile.threads)  # before TVM makes its thread pool
    import tvm.s_tir.meta_schedule as ms

    from hetfeat.workloads.networks import load_network
    from hetfeat.workloads.tvm import as_target, extract_tasks, import_network, lower

    target = as_target(profile.target)
    lowered = lower(import_network(load_network(given.network)), target)
    tasks = extract_tasks(lowered, target)
    given.out.mkdir(parents=True)
    with ExitStack() as stack:
        parts = {}
        if given.measurer == "ours":
            from stock_measurer import builder_and_runner

            parts = stack.enter_context(builder_and_runner(profile))
        watch = Watch(given.out / "database_tuning_record.json")
        watch.start()
        ms.relax_integration.tune_relax(
            lowered,
            {},
            target,
            str(given.out),
            max_trials_global=given.trials_per_task * len(tasks),
            seed=given.seed,
            **parts,
        )
        watch.done.set()
        watch.join()
        watch.note()
    found = []
    for share in SHARES:
        seconds, records = watch.at(share)
        found.append({"share": share, "seconds": seconds, "trials": records,
                      "tasks": fastest(given.out, records)})  # fmt: skip
        print(f"{share:.0%}: {seconds:.0f} s, {records} trials, {len(found[-1]['tasks'])} tasks")
    kept = {
        "network": given.network,
        "device": profile.name,
        "measurer": given.measurer,
        "tvm": version("apache-tvm"),
        "seed": given.seed,
        "tasks": len(tasks),
        "found": found,
    }
    with gzip.GzipFile(given.out / "found.json.gz", "wb", mtime=0) as file:
        file.write(json.dumps(kept).encode())


if __name__ == "__main__":
    main()
