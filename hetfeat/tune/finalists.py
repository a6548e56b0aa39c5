"""What a network is built of: the fastest few programs of each task, measured once more.

Tuning measures a program again and again, its weights in the caches. In a network they come from
memory each time, and a lucky measurement is found out by another process.
"""

from collections.abc import Mapping, Sequence

from hetfeat.measure.base import DeviceMeasurer
from hetfeat.records import Measurement, Task
from hetfeat.workloads.winograd.variants import Alternatives, network_s


def select_finalists(
    leaders: Mapping[str, Sequence[Measurement]],
    weights: Mapping[Task, int],
    alternatives: Alternatives,
    *,
    count: int = 3,
    margin: float = 1.1,
    least_share: float = 0.005,
) -> list[Measurement]:
    """What to measure again.

    Args:
        leaders: Fastest measurements of each task by hash, fastest first.
        weights: Number of occurrences of each task.
        alternatives: Convolution and tile of some tasks, by hash, of which one will do: one program
            at least of each of them is measured again.
        count: Most programs of a task; 3 by default.
        margin: Factor on the latency of the fastest up to which a program is measured again; 1.1
            by default.
        least_share: Share of the network's latency below which a task's fastest program is taken
            as it is; 0.005 by default.
    """
    occurrences = {task.hash: weight for task, weight in weights.items()}
    fastest_s = {task: ran[0].latency_s or 0.0 for task, ran in leaders.items()}
    measured = {task: weight for task, weight in weights.items() if task.hash in leaders}
    total_s = network_s(measured, fastest_s, alternatives)
    chosen = []
    for task, ran in leaders.items():
        if occurrences[task] * fastest_s[task] >= least_share * total_s:
            bound_s = margin * fastest_s[task]
            chosen += [m for m in ran[:count] if (m.latency_s or 0.0) <= bound_s]
        elif task in alternatives:
            chosen.append(ran[0])
    return chosen


def measure_finalists(
    candidates: Sequence[Measurement], measurer: DeviceMeasurer
) -> tuple[dict[str, Measurement], dict[str, float]]:
    """The fastest of each task's candidates with cold weights.

    Args:
        candidates: Measurements that `select_finalists` chose.
        measurer: Measurer whose processes are fresh.

    Returns:
        By task hash: the candidate, as it was first measured, and its cold latency in seconds.
        Tasks of which nothing ran this time are missing.
    """
    by_key = {m.program.key: m for m in candidates}
    best: dict[str, Measurement] = {}
    cold_s: dict[str, float] = {}
    for again in measurer.measure_each([m.program for m in candidates], cold=True):
        task, latency_s = again.program.task.hash, again.latency_s
        if latency_s is not None and latency_s < cold_s.get(task, float("inf")):
            best[task], cold_s[task] = by_key[again.program.key], latency_s
    return best, cold_s
