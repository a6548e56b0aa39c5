"""How far a mean over tasks may be off: the tasks of a test side are a draw, and few.

Seeds of one model on one test side agree to 0.002, and say nothing of other tasks. Drawing the
tasks again does: connected tasks (`dataset.splits.task_units`) are drawn together, on all devices.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Interval:
    """A mean over tasks and its bootstrap interval.

    Attributes:
        mean: Mean over tasks; NaN without any.
        low: Lower end of the interval; NaN with fewer than two units.
        high: Upper end of the interval; NaN with fewer than two units.
        error: Standard error of the mean; NaN with fewer than two units.
        units: Number of units that were drawn from.
    """

    mean: float
    low: float
    high: float
    error: float
    units: int


def bootstrap(
    values: Floats,
    units: Ints,
    weights: Floats | None = None,
    *,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """Interval of a mean over tasks, which are drawn anew with replacement.

    Args:
        values: Figure of each task on a device, float64 [n].
        units: Code of the connected tasks that each is one of, int64 [n].
        weights: Weight of each in the mean, float64 [n]; None, the default, for equal ones.
        level: Share of the draws that the interval holds; 0.95 by default.
        draws: Number of draws; 2000 by default.
        seed: Seed of the draws; 0 by default: two models on one test side see the same ones.
    """
    weights = np.ones(len(values)) if weights is None else weights
    own = np.unique(units, return_inverse=True)[1]
    sums, weight = np.bincount(own, values * weights), np.bincount(own, weights)
    count = len(sums)
    mean = float(sums.sum() / weight.sum()) if count else np.nan
    if count < 2:
        return Interval(mean, np.nan, np.nan, np.nan, count)
    rng = np.random.default_rng(seed)
    drawn = [rng.integers(0, count, count) for _ in range(draws)]
    means = np.array([sums[at].sum() / weight[at].sum() for at in drawn])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(mean, float(low), float(high), float(means.std(ddof=1)), count)


def paired_bootstrap(
    ours: Floats, theirs: Floats, units: Ints, weights: Floats | None = None, *, seed: int = 0
) -> Interval:
    """Interval of the mean of `ours - theirs`, two figures of the same tasks in the same order.

    What the tasks differ by cancels out: two models may be told apart whose own intervals overlap.
    """
    return bootstrap(ours - theirs, units, weights, seed=seed)
