"""Retention of one model with few and with many versions, and the doctor of a full registry.

    python benchmarks/registry/maintenance.py [--many 2200] [--remove 200] [--models 1000]

The versions are written straight into the database; what is timed goes through MLflow.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import in_child, machine, parser, registry_on
from filling import fill

from registry.maintenance import retention
from registry.maintenance.audit import diagnose
from registry.models.lock import LOCK
from registry.models.mlflow_client import connect

MOST_DOCTOR_S = 120.0
MOST_GROWTH = 1.5
"""Of the processor seconds for each version, from few versions to many."""


def prune(uri: str, name: str, most: int | None) -> dict[str, Any]:
    """Removes versions that are not in use, noting how long the lock is held at most."""
    held_s: list[float] = []
    began, began_cpu = time.perf_counter(), time.process_time()
    gone = retention.prune(name, 0, most=most, on_turn=held_s.append, client=connect(uri))
    taken = time.perf_counter() - began
    return {
        "versions": len(gone),
        "s": round(taken, 1),
        "cpu_s": round(time.process_time() - began_cpu, 1),
        "each_cpu_s": round((time.process_time() - began_cpu) / len(gone), 4),
        "turns": len(held_s),
        "longest_hold_s": round(max(held_s, default=0.0), 1),
    }


def examine(uri: str) -> dict[str, Any]:
    """What the doctor of all models takes; nothing may be found, as nothing is wrong."""
    client = connect(uri)
    began, began_cpu = time.perf_counter(), time.process_time()
    found = diagnose(client)
    return {
        "s": round(time.perf_counter() - began, 1),
        "cpu_s": round(time.process_time() - began_cpu, 1),
        "findings": len(found),
    }


def main() -> int:
    options = parser(stores=("sqlite", "postgresql"))
    options.add_argument("--few", type=int, default=60)
    options.add_argument("--many", type=int, default=2200)
    options.add_argument("--remove", type=int, help="Of each model; by default all that may go.")
    options.add_argument("--models", type=int, default=1000)
    options.add_argument("--versions", type=int, default=20)
    given = options.parse_args()
    result: dict[str, Any] = {**machine(), "store": given.on}
    for what, versions in (("few", given.few), ("many", given.many)):
        with registry_on(given.on) as uri, tempfile.TemporaryDirectory() as folder:
            size = (1, versions, Path(folder), versions)
            in_child(lambda uri=uri, size=size: fill(uri, *size))
            result[what] = in_child(lambda uri=uri: prune(uri, "costmodel.filled-0", given.remove))
    with registry_on(given.on) as uri, tempfile.TemporaryDirectory() as folder:
        in_child(lambda: fill(uri, given.models, given.versions, Path(folder), 2))
        result["doctor"] = in_child(lambda: examine(uri))
    result["growth"] = round(result["many"]["each_cpu_s"] / result["few"]["each_cpu_s"], 2)
    print(json.dumps(result, indent=1))
    kept = result["growth"] <= MOST_GROWTH and result["many"]["longest_hold_s"] < LOCK.hold_s
    sound = result["doctor"]["findings"] == 0 and result["doctor"]["s"] < MOST_DOCTOR_S
    return 0 if kept and sound else 1


if __name__ == "__main__":
    sys.exit(main())
