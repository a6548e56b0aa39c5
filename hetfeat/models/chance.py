"""How far from one half the pairwise accuracy of a model lies that knows nothing.

It depends on the tasks and programs that it is taken of. The order of scores is then any, with
equal probability, and the variance of a task's share of right pairs is exact: two pairs with one
program in common agree by 1/12 where it is the faster of both or the slower of both, and by -1/12
else; a pair with itself by 1/4.
"""

import math

import numpy as np
import numpy.typing as npt

from hetfeat.models.metrics import NOISE, by_group

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def chance_error(latency_s: Floats, groups: Ints, units: Ints, noise: float = NOISE) -> float:
    """Standard error of the PCA of scores in random order; NaN where no pair counts.

    Args:
        latency_s: Latency of each program in seconds, float64 [n]; NaN for a failed one.
        groups: Code of each program's task and device, int64 [n].
        units: Code of its connected tasks, int64 [n]. Wrong labels may be the same ones on several
            devices: those of a unit are taken to err together.
        noise: Least relative difference of latencies for a pair to count; `NOISE` by default.
    """
    valid = np.isfinite(latency_s)
    of_unit: dict[int, float] = {}
    tasks = 0
    for every in by_group(groups):
        rows = every[valid[every]]
        error = _error_of_group(np.log(latency_s[rows]), math.log1p(noise))
        if error is not None:
            tasks += 1
            unit = int(units[every[0]])
            of_unit[unit] = of_unit.get(unit, 0.0) + error
    return math.hypot(*of_unit.values()) / tasks if tasks else math.nan


def _error_of_group(log_s: Floats, least: float) -> float | None:
    """Standard deviation of one task's share of right pairs; None where no pair counts."""
    ordered = np.sort(log_s)
    faster_than = len(ordered) - np.searchsorted(ordered, ordered + least, side="left")
    slower_than = np.searchsorted(ordered, ordered - least, side="right")
    pairs = int(faster_than.sum())
    if not pairs:
        return None
    return math.sqrt((pairs + float(((faster_than - slower_than) ** 2).sum())) / 12) / pairs
