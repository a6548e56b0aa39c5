"""Compares engines: each in its own process, taking turns, with equal threads."""

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hetfeat.errors import WorkFailed
from hetfeat.measure.worker import Lost, Worker

CHILD = "hetfeat.deploy.engines"
TURN_S = 0.25
TURN_TIMEOUT_S = 120.0
LOAD_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Latency:
    """Latency of one engine.

    Attributes:
        median_ms: Median over turns of each turn's median.
        low_ms: Fastest turn.
        high_ms: Slowest turn.
    """

    median_ms: float
    low_ms: float
    high_ms: float


def compare(
    engines: Mapping[str, dict[str, Any]], threads: int, rounds: int
) -> dict[str, Latency | None]:
    """Times engines in turns, in one order and then the other, so that drift hits all alike.

    Args:
        engines: Settings for `engines.Service` by name; the first must work.
        threads: Threads that each engine uses.
        rounds: Turns of each engine.

    Returns:
        Latencies by name; None for a peer that could not be run.

    Raises:
        WorkFailed: The first engine does not run.
    """
    workers = {
        name: Worker(CHILD, [json.dumps({"threads": threads, **settings})], threads)
        for name, settings in engines.items()
    }
    first = next(iter(engines))
    try:
        for name in list(workers):
            failure = _failure(workers[name])
            if failure and name == first:
                raise WorkFailed(
                    f"{name}, which does not run ({failure})",
                    "a bundle that runs",
                    "deploy it anew with --refresh true",
                )
            if failure:
                workers.pop(name).stop()
        turns: dict[str, list[float]] = {name: [] for name in workers}
        for number in range(rounds):
            order = list(workers) if number % 2 == 0 else list(reversed(workers))
            for name in order:
                reply = workers[name].ask({"do": "time", "seconds": TURN_S}, TURN_TIMEOUT_S)
                turns[name].append(statistics.median(reply["value"]) * 1e3)
    except Lost as lost:
        raise WorkFailed(
            f"an engine that stopped while being timed ({lost.kind})",
            "engines that run",
            "run it again",
        ) from lost
    finally:
        for worker in workers.values():
            worker.stop()
    return {name: _latency(turns[name]) if name in turns else None for name in engines}


def _failure(worker: Worker) -> str | None:
    """Why an engine does not load, or None."""
    try:
        reply = worker.ask({"do": "hello"}, LOAD_TIMEOUT_S)
    except Lost as lost:
        return lost.kind
    return str(reply["message"]) if "error" in reply else None


def _latency(turns: list[float]) -> Latency:
    return Latency(statistics.median(turns), min(turns), max(turns))
