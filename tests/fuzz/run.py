"""Runs mutated seeds through every target; a finding is saved, and shown with its traceback.

`make fuzz ARGS="--minutes 60 --jobs 2"`; `make fuzz ARGS="--again FILE"` for a finding.
"""

import argparse
import contextlib
import hashlib
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
MOST_S = 5
MOST_GROWTH_KB = 200 * 1024
LONGEST = 64 * 1024
"""Inputs are kept below this, in bytes."""


class Slow(BaseException):
    """An input took longer than `MOST_S`."""


def trial(name: str, data: bytes, folder: Path) -> str | None:
    """What is wrong with how a target took an input; None if it was read or refused."""
    place = Path(tempfile.mkdtemp(dir=folder))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.alarm(MOST_S)
    try:
        TARGETS[name](data, place)
    except ALLOWED:
        pass
    except (Exception, Slow):
        return traceback.format_exc(limit=-4)
    finally:
        signal.alarm(0)
        shutil.rmtree(place, ignore_errors=True)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return f"{grown // 1024} MB for {len(data)} bytes\n" if grown > MOST_GROWTH_KB else None


def fuzz(
    name: str, seconds: float, seed: int, most: int | None = None
) -> tuple[int, dict[str, tuple[bytes, str]]]:
    """Inputs tried, and the first input and report of each place at which something went wrong."""
    signal.signal(signal.SIGALRM, _too_slow)
    rng = random.Random(f"{name} {seed}")
    seeds = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
    pool, tried = list(seeds), 0
    found: dict[str, tuple[bytes, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for data in seeds:  # imports happen before anything is timed
            with contextlib.suppress(Exception):
                TARGETS[name](data, Path(tempfile.mkdtemp(dir=folder)))
        end = time.monotonic() + seconds
        while time.monotonic() < end and (most is None or tried < most):
            data = seeds[tried] if tried < len(seeds) else mutated(rng.choice(pool), rng)[:LONGEST]
            tried += 1
            if trouble := trial(name, data, Path(folder)):
                found.setdefault(_place(trouble), (data, trouble))
            elif rng.random() < 0.05:
                pool.append(data)  # changes add up
                del pool[len(seeds) : -200]
    return tried, found


def _place(trouble: str) -> str:
    """The line at which it was raised, and what."""
    lines = trouble.strip().splitlines()
    at = [line.strip() for line in lines if line.strip().startswith("File ")]
    return f"{at[-1] if at else ''} {lines[-1].partition(':')[0]}"


def _too_slow(*_: Any) -> None:
    raise Slow(f"over {MOST_S} s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 if something was found."""
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--minutes", type=float, default=10, help="in all, split over targets")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"), help="folder of findings")
    parser.add_argument("--again", type=Path, help="run one finding, OUT/TARGET/FILE, once")
    given = parser.parse_args(arguments)
    if given.again:
        TARGETS[given.again.parent.name](given.again.read_bytes(), Path(tempfile.mkdtemp()))
        return 0
    seconds = given.minutes * 60 * given.jobs / len(given.targets)
    print(f"seed {given.seed}", flush=True)
    total = 0
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        runs = {name: pool.submit(fuzz, name, seconds, given.seed) for name in given.targets}
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
