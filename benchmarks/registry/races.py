"""Races of promoters and rollbackers for one registered model at a time.

    python benchmarks/registry/races.py --rounds 200 [--on postgresql] [--workers 8]

In each round every worker at once promotes a version of its own, or rolls back. Afterwards aliases,
MLflow's stages and the ledger must tell one story, with an entry for each success.
"""

import json
import multiprocessing
import random
import sys
import time
from multiprocessing.synchronize import Barrier
from typing import Any

from common import machine, make_model, no_gates, parser, quantile, registry_on
from mlflow import MlflowClient

from hetfeat.errors import RequestError
from registry.files.moves import promote, rollback
from registry.models import aliases
from registry.models.aliases import State
from registry.models.lock import locks_of
from registry.models.mlflow_client import connect
from registry.models.stages import history

PATIENCE_S = 600.0


def worker(number: int, uri: str, start: Barrier, orders: Any, results: Any) -> None:
    client = connect(uri)
    client.search_registered_models(max_results=1)
    while (name := orders.get()) is not None:
        start.wait(PATIENCE_S)
        began = time.perf_counter()
        said, version = "done", 0
        try:
            if number % 4 == 3:
                outcome = rollback(name, client=client)
            else:
                outcome = promote(name, number + 1, "production", gates=no_gates, client=client)
            version = outcome.entry["version"] if outcome.entry else 0
        except RequestError:
            said = "nothing to do"
        except Exception as error:
            said = f"{type(error).__name__}: {str(error)[:200]}"
        results.put((said, version, time.perf_counter() - began))


def judge(client: MlflowClient, name: str, successes: int) -> list[str]:
    """What is inconsistent after a round."""
    entries, faults = history(name, client=client)
    found = list(faults)
    if len(entries) != successes:
        found.append(f"{successes} successes, {len(entries)} entries")
    if entries:
        found += aliases.differences(client, name, State.of(entries[-1]["state"]))
    if locks := locks_of(client, name):
        found.append(f"{len(locks)} locks left")
    return found


def unloaded_s(client: MlflowClient, count: int = 20) -> list[float]:
    """Seconds of promotions that nobody disturbs."""
    name, taken = make_model(client, 2), []
    for turn in range(count):
        began = time.perf_counter()
        promote(name, turn % 2 + 1, "production", gates=no_gates, client=client)
        taken.append(time.perf_counter() - began)
    return taken


def main() -> int:
    options = parser(rounds=20)
    options.add_argument("--workers", type=int, default=8)
    given = options.parse_args()
    with registry_on(given.on) as uri:
        result = race(uri, given.rounds, given.workers)
    print(json.dumps({**machine(), "store": given.on, **result}, indent=1))
    return 1 if result["inconsistent"] or result["failed"] else 0


def race(uri: str, rounds: int, count: int) -> dict[str, Any]:
    """So many rounds of so many workers; what went wrong, and how long it took."""
    fork = multiprocessing.get_context("fork")
    start, results = fork.Barrier(count), fork.Queue()
    orders = [fork.Queue() for _ in range(count)]
    workers = [
        fork.Process(target=worker, args=(number, uri, start, orders[number], results))
        for number in range(count)
    ]
    for process in workers:
        process.start()
    client = connect(uri)  # only now: a fork must not share a connection
    alone = unloaded_s(client)
    wrong: list[str] = []
    failed: list[str] = []
    taken: list[float] = []
    began = time.perf_counter()
    for turn in range(rounds):
        name = make_model(client, count)
        for queue in random.sample(orders, len(orders)):
            queue.put(name)
        said = [results.get(timeout=PATIENCE_S) for _ in workers]
        taken += [seconds for _, _, seconds in said]
        failed += [what for what, _, _ in said if what not in ("done", "nothing to do")]
        successes = sum(what == "done" and version > 0 for what, version, _ in said)
        wrong += judge(client, name, successes)
        print(f"round {turn + 1}: {len(wrong)} wrong, {len(failed)} failed", file=sys.stderr)
    for queue in orders:
        queue.put(None)
    for process in workers:
        process.join()
    return {
        "rounds": rounds,
        "workers": count,
        "inconsistent": wrong,
        "failed": failed,
        "seconds": round(time.perf_counter() - began, 1),
        "unloaded_median_s": round(quantile(alone, 0.5), 3),
        "contended_median_s": round(quantile(taken, 0.5), 3),
        "contended_max_s": round(max(taken), 3),
    }


if __name__ == "__main__":
    sys.exit(main())
