"""Whether two processors are at times one core: the rate of both at once and of each alone.

    python benchmarks/shared_cores.py [--rounds 40]

Each of the first two processors multiplies matrices with a thread of its own. Where a virtual
machine's processors are now and then threads of one core, both are slower at once, not alone.
Nothing else may run.
"""

import argparse
import os
import threading
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

SECONDS = 0.12
PAUSE_S = 0.25
SIDE = 384
SLOW = 0.85


def rate(cpu: int, rates: dict[int, float]) -> None:
    """Puts the GFLOP/s of one processor into `rates`."""
    os.sched_setaffinity(threading.get_native_id(), {cpu})
    matrix = np.random.default_rng(cpu).random((SIDE, SIDE), np.float32)
    out = np.empty_like(matrix)
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        np.dot(matrix, matrix, out=out)
        count += 1
    rates[cpu] = 2e-9 * count * SIDE**3 / (time.perf_counter() - started)


def rates_of(cpus: tuple[int, ...]) -> list[float]:
    rates: dict[int, float] = {}
    threads = [threading.Thread(target=rate, args=(cpu, rates)) for cpu in cpus]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [rates[cpu] for cpu in cpus]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    shares = []
    for _ in range(given.rounds):
        time.sleep(PAUSE_S)
        first = rates_of((0, 1))
        alone = [*rates_of((0,)), *rates_of((1,))]
        again = rates_of((0, 1))
        print("  ".join(f"{n:5.0f}" for n in (*first, *alone, *again)), flush=True)
        shares += [sum(both) / sum(alone) for both in (first, again)]
    slow = sum(share < SLOW for share in shares)
    print("GFLOP/s of both at once, of each alone, of both at once once more")
    print(f"both under {SLOW} of what they do alone: {slow} of {len(shares)} times")


if __name__ == "__main__":
    main()
