"""What a network is built of: the fastest few programs of each task, measured once more.

Tuning measures a program again and again, its weights in the caches. In a network they come from
memory each time, and a lucky measurement is found out by another process.
"""

from collections.abc import Mapping, Sequence

from hetfeat.measure.base import DeviceMeasurer
from hetfeat.records import Measurement, Task
from hetfeat.workloads.winograd.variants import Ways, network_s

FINALISTS = 3
MARGIN = 1.1
"""How much slower than the fastest a program may be and still be measured again."""
LEAST_SHARE = 0.005
"""Of the network's time, below which a task's fastest program is taken as it is."""


def finalists(
    leaders: Mapping[str, Sequence[Measurement]],
    weights: Mapping[Task, int],
    contested: Ways,
) -> list[Measurement]:
    """What to measure again.

    Args:
        leaders: The fastest programs of each task by hash, fastest first.
        weights: Occurrences of each task.
        contested: What can be computed in several ways: one program at least of each of its tasks.
    """
    count = {task.hash: weight for task, weight in weights.items()}
    fastest_s = {task: found[0].latency_s or 0.0 for task, found in leaders.items()}
    total = network_s({t: n for t, n in weights.items() if t.hash in leaders}, fastest_s, contested)
    chosen = []
    for task, found in leaders.items():
        if count[task] * fastest_s[task] >= LEAST_SHARE * total:
            bound = MARGIN * fastest_s[task]
            chosen += [m for m in found[:FINALISTS] if (m.latency_s or 0.0) <= bound]
        elif task in contested:
            chosen.append(found[0])
    return chosen


def choose(
    candidates: Sequence[Measurement], measurer: DeviceMeasurer
) -> tuple[dict[str, Measurement], dict[str, float]]:
    """The fastest of each task's candidates with cold weights.

    Args:
        candidates: From `finalists`.
        measurer: Of fresh processes.

    Returns:
        By task hash: the candidate, as it was first measured, and its cold latency in seconds.
        Tasks of which nothing ran this time are missing.
    """
    known = {m.program.key: m for m in candidates}
    best: dict[str, Measurement] = {}
    cold_s: dict[str, float] = {}
    for found in measurer.measure_each([m.program for m in candidates], cold=True):
        task, latency_s = found.program.task.hash, found.latency_s
        if latency_s is not None and latency_s < cold_s.get(task, float("inf")):
            best[task], cold_s[task] = known[found.program.key], latency_s
    return best, cold_s
