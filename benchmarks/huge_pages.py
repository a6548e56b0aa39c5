"""What huge pages are worth to a bundle: the same one in turns, with and without them.

    python benchmarks/huge_pages.py BUNDLE [--rounds 24]

Without: the kernel is told to give the process none (PR_SET_THP_DISABLE, which children inherit).
"""

import argparse
import ctypes
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ratios import ratio

from hetfeat.deploy.bench import CHILD, Latency, TurnOptions
from hetfeat.deploy.bundle import read_manifest
from hetfeat.deploy.messages import TimeEngine, WarmEngine
from hetfeat.measure.messages import Hello
from hetfeat.measure.worker import Worker

PR_SET_THP_DISABLE = 41
TURN_S = 0.3
SETTLE_S, TURN_TIMEOUT_S = TurnOptions().settle_s, TurnOptions().turn_timeout_s


def started(bundle: Path, threads: int, without: bool) -> Worker:
    settings = json.dumps({"engine": "bundle", "bundle": str(bundle), "threads": threads})
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_THP_DISABLE, int(without), 0, 0, 0):
        raise SystemExit("this kernel does not let a process do without huge pages")
    worker = Worker(CHILD, [settings], threads)
    worker.ask(Hello(), TURN_TIMEOUT_S)
    worker.ask(WarmEngine(), TURN_TIMEOUT_S)
    return worker


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rounds", type=int, default=24)
    given = parser.parse_args()
    threads = read_manifest(given.bundle)["threads"]
    workers = {
        name: started(given.bundle, threads, name == "without") for name in ("without", "with")
    }
    turns: dict[str, list[float]] = {name: [] for name in workers}
    for number in range(given.rounds):
        for name in list(workers) if number % 2 == 0 else reversed(workers):
            time.sleep(SETTLE_S)
            latencies_s = workers[name].ask(TimeEngine(seconds=TURN_S), TURN_TIMEOUT_S)
            turns[name].append(1e3 * statistics.median(latencies_s))
    for worker in workers.values():
        worker.stop()
    found = {
        name: Latency(statistics.median(ms), min(ms), max(ms), tuple(ms))
        for name, ms in turns.items()
    }
    for name, latency in found.items():
        print(
            f"{name:8} {latency.median_ms:.2f} ms ({latency.low_ms:.2f} to {latency.high_ms:.2f})"
        )
    print(
        "with / without: {:.3f} ({:.3f} to {:.3f})".format(*ratio(found["with"], found["without"]))
    )


if __name__ == "__main__":
    main()
