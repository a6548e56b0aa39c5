"""Promotions killed at a random moment, each then explained and repaired by the doctor.

python benchmarks/registry/crashes.py --rounds 100 [--on server]
"""

import collections
import contextlib
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from common import machine, make_model, no_gates, parser, registry_on
from mlflow import MlflowClient

from registry.files.moves import promote
from registry.maintenance.audit import diagnose
from registry.maintenance.repair import repair
from registry.models import aliases
from registry.models.aliases import State
from registry.models.mlflow_client import connect
from registry.models.stages import history


class Announcing:
    """A client that writes a byte into a pipe before each of its calls."""

    def __init__(self, client: MlflowClient, pipe: int) -> None:
        self.client, self.pipe = client, pipe

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.client, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            os.write(self.pipe, b"x")
            return found(*args, **kwargs)

        return call


def prepare(uri: str) -> str:
    """A model with version 1 in production and 2 in staging."""
    client = connect(uri)
    name = make_model(client, 3)
    promote(name, 1, "production", gates=no_gates, client=client)
    promote(name, 2, "staging", gates=no_gates, client=client)
    return name


def promotion(uri: str, name: str, pipe: int) -> float:
    """Moves version 2 to production, announcing each call; returns the seconds it took."""
    client = connect(uri)
    client.get_registered_model(name)
    began = time.perf_counter()
    promote(name, 2, "production", gates=no_gates, client=Announcing(client, pipe))
    return time.perf_counter() - began


def measure(uri: str, name: str) -> tuple[int, float]:
    """How many calls a promotion makes, and the seconds that it takes."""
    reading, writing = os.pipe()
    seconds = promotion(uri, name, writing)
    os.close(writing)
    calls = len(os.read(reading, 10_000))
    os.close(reading)
    return calls, seconds


def crash(uri: str, name: str, call: int, after_s: float) -> bool:
    """Kills a process that long after it began a call; whether it was still at it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            promotion(uri, name, writing)
        os._exit(0)
    os.close(writing)
    begun = 0
    while begun < call and (said := os.read(reading, call - begun)):
        begun += len(said)
    time.sleep(after_s)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(reading)
    return os.WIFSIGNALED(status)


def examine(uri: str, name: str) -> dict[str, list[str]]:
    """What the doctor found, what it left, and what is still inconsistent then."""
    client = connect(uri)
    found = diagnose(client, [name])
    left = repair(client, found)
    entries, faults = history(name, client=client)
    state = State.of(entries[-1]["state"])
    wrong = [*faults, *aliases.differences(client, name, state)]
    if state not in (State(2, 1, None), State(None, 2, 1)):
        wrong.append(f"neither before nor after: {state}")
    promote(name, 3, "staging", gates=no_gates, client=client)
    return {
        "found": [finding.code for finding in found],
        "left": [finding.what for finding in left],
        "wrong": wrong,
    }


def main() -> int:
    options = parser(rounds=20)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    random.seed(given.seed)
    with registry_on(given.on) as uri:
        result = crash_often(uri, given.rounds)
    print(json.dumps({**machine(), "store": given.on, **result}, indent=1))
    return 1 if result["unexplained_or_unrepaired"] else 0


def crash_often(uri: str, rounds: int) -> dict[str, Any]:
    """So many crashes; what the doctor found and what it left."""
    killed, bad = 0, []
    codes: collections.Counter[str] = collections.Counter()
    # A fork must not share a connection: this process has none.
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=fork) as other:

        def elsewhere(work: Callable[..., Any], *given: Any) -> Any:
            return other.submit(work, *given).result()

        measured = [elsewhere(measure, uri, elsewhere(prepare, uri)) for _ in range(3)]
        calls, usual_s = sorted(measured)[1]
        for turn in range(rounds):
            name = elsewhere(prepare, uri)
            at = random.randint(1, calls)
            killed += crash(uri, name, at, random.uniform(0, usual_s / calls))
            said = elsewhere(examine, uri, name)
            codes.update(["+".join(said["found"]) or "nothing"])
            bad += [*said["left"], *said["wrong"]]
            print(f"round {turn + 1}: {dict(codes)}, {len(bad)} bad", file=sys.stderr)
    return {
        "rounds": rounds,
        "calls": calls,
        "promotion_s": round(usual_s, 3),
        "killed_in_time": killed,
        "found": dict(codes),
        "unexplained_or_unrepaired": bad,
    }


if __name__ == "__main__":
    sys.exit(main())
