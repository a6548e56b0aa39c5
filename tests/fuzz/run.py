"""Runs mutated seeds through every target; a finding is saved, and shown with its traceback.

`make fuzz ARGS="--minutes 60 --jobs 2"`; `make fuzz ARGS="--again FILE"` for a finding.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.fuzz.mutate import mutated
from tests.fuzz.targets import ALLOWED, TARGETS

CORPUS = Path(__file__).parent / "corpus"
MOST_CPU_S, MOST_S = 5, 60
"""Of an input. Other processes may slow this one down; what waits takes no CPU time."""
MOST_GROWTH_KB = 200 * 1024
LONGEST = 64 * 1024
"""Inputs are kept below this, in bytes."""


class Slow(BaseException):
    """An input took longer than `MOST_CPU_S` or `MOST_S`."""


def trial(name: str, data: bytes, folder: Path) -> str | None:
    """What is wrong with how a target took an input; None if it was read or refused."""
    place = Path(tempfile.mkdtemp(dir=folder))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.alarm(MOST_S)
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
    try:
        TARGETS[name](data, place)
    except ALLOWED:
        pass
    except (Exception, Slow):
        return traceback.format_exc(limit=-4)
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        shutil.rmtree(place, ignore_errors=True)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return f"{grown // 1024} MB for {len(data)} bytes\n" if grown > MOST_GROWTH_KB else None


def fuzz(
    name: str, seconds: float, seed: int, most: int | None = None
) -> tuple[int, dict[str, tuple[bytes, str]]]:
    """Inputs tried, and the first input and report of each place at which something went wrong."""
    catch_alarms()
    rng = random.Random(f"{name} {seed}")
    seeds = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
    pool, tried = list(seeds), 0
    found: dict[str, tuple[bytes, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        warm_up(name, Path(folder))
        end = time.monotonic() + seconds
        while time.monotonic() < end and (most is None or tried < most):
            data = seeds[tried] if tried < len(seeds) else mutated(rng.choice(pool), rng)[:LONGEST]
            tried += 1
            if trouble := trial(name, data, Path(folder)):
                found.setdefault(place_of(trouble), (data, trouble))
            elif rng.random() < 0.05:
                pool.append(data)  # changes add up
                del pool[len(seeds) : -200]
    return tried, found


def warm_up(name: str, folder: Path) -> None:
    """Imports happen before anything is timed."""
    for path in sorted((CORPUS / name).iterdir()):
        with contextlib.suppress(Exception):
            TARGETS[name](path.read_bytes(), Path(tempfile.mkdtemp(dir=folder)))


def place_of(trouble: str) -> str:
    """The line at which it was raised, and what."""
    lines = trouble.strip().splitlines()
    at = [line.strip() for line in lines if line.strip().startswith("File ")]
    return f"{at[-1] if at else ''} {lines[-1].partition(':')[0]}"


def catch_alarms() -> None:
    """An alarm of `trial` ends what is tried."""
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, _too_slow)


def _too_slow(number: int, _: Any) -> None:
    raise Slow(f"over {MOST_CPU_S} s of CPU" if number == signal.SIGPROF else f"over {MOST_S} s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 if something was found."""
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--minutes", type=float, default=10, help="in all, split over targets")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--guide", choices=("chance", "coverage"), default="chance")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"), help="folder of findings")
    parser.add_argument("--again", type=Path, help="run one finding, OUT/TARGET/FILE, once")
    given = parser.parse_args(arguments)
    if given.again:
        TARGETS[given.again.parent.name](given.again.read_bytes(), Path(tempfile.mkdtemp()))
        return 0
    from tests.fuzz import guided  # which imports this module

    seconds = given.minutes * 60 * given.jobs / len(given.targets)
    if given.guide == "coverage" and importlib.util.find_spec("atheris") is None:
        parser.error("--guide coverage wants atheris: pip install 'hetfeat[fuzz]'")
    attempt = guided.fuzz if given.guide == "coverage" else fuzz
    print(f"seed {given.seed}", flush=True)
    total = 0
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        runs = {name: pool.submit(attempt, name, seconds, given.seed) for name in given.targets}
        for name, run in runs.items():
            tried, found = run.result()
            total += len(found)
            print(f"{name}: {tried} inputs, {len(found)} findings", flush=True)
            for data, trouble in found.values():
                path = given.out / name / hashlib.sha256(data).hexdigest()[:12]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                print(f"{path}\n{data[:300]!r}\n{trouble}", flush=True)
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
