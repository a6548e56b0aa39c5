"""The label a cost model learns: how close a program comes to the best one of its task."""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from hetfeat.dataset.splits import anchors
from hetfeat.features.batch import Examples
from hetfeat.models.base import CostModel

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
    return add_counts(*(_counted(side.device.tolist(), side.task.tolist()) for side in sides))


def anchors_seen(*sides: Examples) -> dict[str, dict[str, int]]:
    """The same by anchor instead of task."""
    return add_counts(*(_counted(side.device.tolist(), anchors(side)) for side in sides))


def leaked_records(model: CostModel, device: str, keys: Iterable[str]) -> int:
    """Records of a device that a model learnt from, by the anchors and hashes of tasks.

    Hashes are for folders that were saved before anchors were.
    """
    seen = model.seen_anchors.get(device, {})
    return sum(seen.get(key, 0) for key in set(keys))


def _counted(devices: Iterable[str], keys: Iterable[str]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for (device, key), count in Counter(zip(devices, keys, strict=True)).items():
        counts.setdefault(device, {})[key] = count
    return counts


def add_counts(*counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Sums of what `records_seen` or `anchors_seen` returned."""
    total: dict[str, dict[str, int]] = {}
    for count in counts:
        for device, tasks in count.items():
            known = total.setdefault(device, {})
            for task, records in tasks.items():
                known[task] = known.get(task, 0) + records
    return total
