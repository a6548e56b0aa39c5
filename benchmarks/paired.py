"""Figures of scores task by task, and by how much one model's exceed another's on the same tasks.

Tasks that are connected are drawn together; what tasks differ by cancels out.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetfeat.dataset.splits import task_units
from hetfeat.features.batch import Examples
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import by_group, pairs_of_groups
from hetfeat.models.spread import Interval, bootstrap, paired_bootstrap

Floats = npt.NDArray[np.float64]
FIGURES = ("pca", "top1")


@dataclass(frozen=True)
class OfTasks:
    """Figures of each task on a device, float64 [tasks]; NaN where a task has none."""

    pca: Floats
    top1: Floats


def of_tasks(scores: Floats, test: Examples) -> OfTasks:
    """PCA of each task, and its fastest latency over that of the program scored best."""
    groups = group_codes(test)[0]
    found = pairs_of_groups(scores, test.latency_s, groups)
    pca = [each.share if each.pairs else np.nan for each in found]
    ran = np.nan_to_num(test.latency_s, nan=np.inf)
    top1 = [
        ran[rows].min() / ran[rows[np.argmax(scores[rows])]] if len(rows) > 1 else np.nan
        for rows in by_group(groups)
    ]
    return OfTasks(np.array(pca), np.array(top1))


def units_of(test: Examples) -> npt.NDArray[np.int64]:
    """Code of the connected tasks that each task is one of, int64 [tasks]."""
    first = [rows[0] for rows in by_group(group_codes(test)[0])]
    return task_units(test)[first]


def mean(values: Floats, units: npt.NDArray[np.int64]) -> Interval:
    """Mean over tasks that have a figure, with its interval."""
    there = np.isfinite(values)
    return bootstrap(values[there], units[there])


def gain(ours: Floats, theirs: Floats, units: npt.NDArray[np.int64]) -> Interval:
    """Mean of what ours is above theirs, over the tasks that have both, with its interval."""
    there = np.isfinite(ours) & np.isfinite(theirs)
    return paired_bootstrap(ours[there], theirs[there], units[there])


def shown(interval: Interval, signed: bool = False) -> str:
    """A figure and its interval."""
    sign = "+" if signed else ""
    return f"{interval.mean:{sign}.3f} ({interval.low:{sign}.3f} to {interval.high:{sign}.3f})"
