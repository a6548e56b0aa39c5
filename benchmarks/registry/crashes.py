"""Promotions killed at a random moment, each then explained and repaired by the doctor.

python benchmarks/registry/crashes.py --rounds 100 [--on server]
"""

import collections
import json
import os
import random
import signal
import sys
import time
from typing import Any

from common import in_child, machine, make_model, no_gates, parser, registry_on

from registry import mirror
from registry.client import connect
from registry.doctor import diagnose
from registry.mirror import State
from registry.repair import repair
from registry.stages import history, promote


def prepare(uri: str) -> str:
    """A model with version 1 in production and 2 in staging."""
    client, name = connect(uri), make_model(uri, 3)
    promote(name, 1, "production", gates=no_gates, client=client)
    promote(name, 2, "staging", gates=no_gates, client=client)
    return name


def whole_s(uri: str) -> float:
    """Seconds that a promotion takes in a process of its own."""
    name = in_child(lambda: prepare(uri))

    def promotion() -> float:
        client = connect(uri)
        client.get_registered_model(name)
        began = time.perf_counter()
        promote(name, 2, "production", gates=no_gates, client=client)
        return time.perf_counter() - began

    return in_child(promotion)


def crash(uri: str, name: str, after_s: float) -> bool:
    """Kills a process that long into its promotion; whether it was still at it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            client = connect(uri)
            client.get_registered_model(name)
            os.write(writing, b"x")
            promote(name, 2, "production", gates=no_gates, client=client)
        finally:
            os._exit(0)
    os.read(reading, 1)
    time.sleep(after_s)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(reading)
    os.close(writing)
    return os.WIFSIGNALED(status)


def examine(uri: str, name: str) -> dict[str, list[str]]:
    """What the doctor found, what it left, and what is still inconsistent then."""
    client = connect(uri)
    found = diagnose(client, [name])
    left = repair(client, found)
    entries, faults = history(name, client=client)
    state = State.of(entries[-1]["state"])
    wrong = [*faults, *mirror.differences(client, name, state)]
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
    usual_s = sorted(whole_s(uri) for _ in range(3))[1]
    for turn in range(rounds):
        name = in_child(lambda: prepare(uri))
        killed += crash(uri, name, random.uniform(0, usual_s))
        said = in_child(lambda name=name: examine(uri, name))
        codes.update(["+".join(said["found"]) or "nothing"])
        bad += [*said["left"], *said["wrong"]]
        print(f"round {turn + 1}: {dict(codes)}, {len(bad)} bad", file=sys.stderr)
    return {
        "rounds": rounds,
        "promotion_s": round(usual_s, 3),
        "killed_in_time": killed,
        "found": dict(codes),
        "unexplained_or_unrepaired": bad,
    }


if __name__ == "__main__":
    sys.exit(main())
