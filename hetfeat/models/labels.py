"""The label a cost model learns: how close a program comes to the best one of its task."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from hetfeat.features.batch import Examples

Best = dict[tuple[str, str], float]
"""Best latency in seconds by (device, task hash)."""


def best_latencies(*parts: Examples) -> Best:
    """Best latency of each task on each device over the examples given, and no others."""
    best: Best = {}
    for part in parts:
        groups, keys = group_codes(part)
        lowest = np.full(len(keys), np.inf)
        valid = np.isfinite(part.latency_s)
        np.minimum.at(lowest, groups[valid], part.latency_s[valid])
        for key, value in zip(keys, lowest.tolist(), strict=True):
            best[key] = min(value, best.get(key, np.inf))
    return best


def labels(examples: Examples, best: Best) -> npt.NDArray[np.float64]:
    """Y = best latency of the task / latency, float64 [n] in [0, 1]; 0 for a failed program."""
    groups, keys = group_codes(examples)
    reference = np.array([best[key] for key in keys])[groups]
    return np.nan_to_num(reference / examples.latency_s, nan=0.0)


def group_codes(examples: Examples) -> tuple[npt.NDArray[np.int64], list[tuple[str, str]]]:
    """Which task on which device each example belongs to.

    Programs are only ever compared inside such a group.

    Returns:
        Codes, int64 [n], and the (device, task hash) that each code stands for.
    """
    seen: dict[tuple[str, str], int] = {}
    pairs = zip(examples.device.tolist(), examples.task.tolist(), strict=True)
    codes = [seen.setdefault(pair, len(seen)) for pair in pairs]
    return np.array(codes, np.int64), list(seen)


def records_seen(*sides: Examples) -> dict[str, dict[str, int]]:
    """How many records of each task on each device the sides hold: device -> task -> count."""
    seen: dict[str, dict[str, int]] = {}
    for side in sides:
        for device, task in zip(side.device.tolist(), side.task.tolist(), strict=True):
            tasks = seen.setdefault(device, {})
            tasks[task] = tasks.get(task, 0) + 1
    return seen


def merged(*counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Sums of what `records_seen` returned."""
    total: dict[str, dict[str, int]] = {}
    for count in counts:
        for device, tasks in count.items():
            known = total.setdefault(device, {})
            for task, records in tasks.items():
                known[task] = known.get(task, 0) + records
    return total
