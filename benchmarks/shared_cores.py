"""Where a virtual machine's two processors are: threads of one core, or cores near or far apart.

    python benchmarks/shared_cores.py [--rounds 40] [--bundle DIR]

Each of the first two processors multiplies matrices, then reads 64 MB over and over, both at once
and each alone. Threads of one core compute more slowly at once; cores that share a cache share its
way to memory, too, and cores that share none each read at once as fast as alone. With a bundle, it
and ONNX Runtime have a turn before each round, and their turns are told apart by what was found.
Nothing else may run.
"""

import argparse
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from hetfeat.deploy.bench import CHILD, TurnOptions
from hetfeat.deploy.messages import TimeEngine, WarmEngine
from hetfeat.measure.messages import Hello
from hetfeat.measure.worker import Worker

SECONDS = 0.06
PAUSE_S = 0.25
SIDE = 384
READ_BYTES = 2**26
TURNS = TurnOptions()
TURN_S, SETTLE_S, TURN_TIMEOUT_S = TURNS.turn_s, TURNS.settle_s, TURNS.turn_timeout_s
ONE_CORE = 0.85
"""At once below this share of what they compute alone: slowed by a thread of the same core."""
APART = 0.75
"""At once above this share of what they read alone: the way to memory is not shared."""


def multiply(cpu: int) -> Callable[[], float]:
    """One multiplication of matrices; returns its GFLOP."""
    matrix = np.random.default_rng(cpu).random((SIDE, SIDE), np.float32)
    out = np.empty_like(matrix)

    def once() -> float:
        np.dot(matrix, matrix, out=out)
        return 2e-9 * SIDE**3

    return once


def read(cpu: int) -> Callable[[], float]:
    """One pass over memory; returns its GB."""
    values = np.full(READ_BYTES // 4, cpu, np.float32)

    def once() -> float:
        np.dot(values, values)
        return 1e-9 * READ_BYTES

    return once


def rates(works: dict[int, Callable[[], float]]) -> list[float]:
    """What processors do a second, all at once."""
    found: dict[int, float] = {}

    def run(cpu: int) -> None:
        os.sched_setaffinity(threading.get_native_id(), {cpu})
        started, done = time.perf_counter(), 0.0
        while time.perf_counter() - started < SECONDS:
            done += works[cpu]()
        found[cpu] = done / (time.perf_counter() - started)

    threads = [threading.Thread(target=run, args=(cpu,)) for cpu in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[cpu] for cpu in works]


def share(works: dict[int, Callable[[], float]]) -> tuple[list[float], float]:
    """Rates at once, and which part that is of the rates alone."""
    at_once = rates(works)
    alone = [*rates({0: works[0]}), *rates({1: works[1]})]
    return at_once, sum(at_once) / sum(alone)


def turn_ms(engine: Worker) -> float:
    time.sleep(SETTLE_S)
    latencies_s = engine.ask(TimeEngine(seconds=TURN_S), TURN_TIMEOUT_S)
    return statistics.median(latencies_s) * 1e3


def engines_of(bundle: Path) -> dict[str, Worker]:
    manifest = json.loads((bundle / "bundle.json").read_text())
    request, threads = manifest["request"], manifest["threads"]
    peer = {"network": request["network"], "batch": manifest["variants"][0]["batch"]}
    settings = {
        "bundle": {"engine": "bundle", "bundle": str(bundle)},
        "onnxruntime": {"engine": "onnxruntime", "seed": request["seed"], **peer},
    }
    return {
        name: Worker(
            CHILD,
            [json.dumps({"threads": threads, **one})],
            threads,
            needs_torch=name != "bundle",
        )
        for name, one in settings.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--bundle", type=Path)
    given = parser.parse_args()
    engines = engines_of(given.bundle) if given.bundle else {}
    products, passes = ({cpu: make(cpu) for cpu in (0, 1)} for make in (multiply, read))
    kinds: dict[str, list[dict[str, float]]] = {"one core": [], "near": [], "apart": []}
    for engine in engines.values():
        engine.ask(Hello(), TURN_TIMEOUT_S)
        engine.ask(WarmEngine(), TURN_TIMEOUT_S)
    for _ in range(given.rounds):
        turns = {name: turn_ms(engine) for name, engine in engines.items()}
        time.sleep(PAUSE_S)
        computed, computing = share(products)
        gb_s, reading = share(passes)
        kind = "one core" if computing < ONE_CORE else "apart" if reading > APART else "near"
        kinds[kind].append(turns)
        said = [f"{name} {ms:.1f} ms" for name, ms in turns.items()]
        said += [
            f"{a:.0f} and {b:.0f} {unit}"
            for (a, b), unit in ((computed, "GFLOP/s"), (gb_s, "GB/s"))
        ]
        print(
            f"{kind:9}", *said, f"{computing:.2f} and {reading:.2f} of alone", sep="  ", flush=True
        )
    for engine in engines.values():
        engine.stop()
    for kind, rounds in kinds.items():
        ms = {name: [turns[name] for turns in rounds] for name in engines if rounds}
        medians = (f"{name} {statistics.median(of):.1f} ms" for name, of in ms.items())
        print(f"{kind}: {len(rounds)} of {given.rounds} rounds", *medians, sep="  ")


if __name__ == "__main__":
    main()
