"""Which part of a transfer is worth its measurements: tasks, and features.

The paper tunes the tasks that contribute most FLOPs (section 4.4), retrains on selected tasks and
leaves selected features to later work (sections 3.1 and 5).
"""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from hetfeat.errors import RequestError
from hetfeat.models.base import CostModel


def heaviest(
    flops: Mapping[str, float], networks: Mapping[str, Mapping[str, int]], share: float
) -> set[str]:
    """The fewest tasks with at least this share of all FLOPs; all where it is 1 or none are known.

    Args:
        flops: FLOPs of one run of each task, by its hash.
        networks: Number of occurrences by network and task hash; a task in none of them counts
            once.
        share: Share of the sum of FLOPs x occurrences, in (0, 1].
    """
    occurrences = {t: [n[t] for n in networks.values() if t in n] or [1] for t in flops}
    weights = {task: one * sum(occurrences[task]) for task, one in flops.items()}
    total, held = sum(weights.values()), 0.0
    chosen: set[str] = set()
    for task in sorted(weights, key=lambda task: (-weights[task], task)):
        if share < 1 and total and held >= share * total:
            break
        chosen.add(task)
        held += weights[task]
    return chosen


def on_columns(source: CostModel, columns: int) -> CostModel:
    """The source, of whose features fine-tuning uses only the most important ones.

    Raises:
        RequestError: Not a model of trees; a network's fine-tuning changes its last layers.
    """
    changed: Any = copy.copy(source)
    if not hasattr(changed.settings, "fine_tune_columns"):
        raise RequestError(
            f"--fine-tune-columns {columns} with a source that is no model of trees",
            "a source that is xgb or lgbm",
            "leave --fine-tune-columns out",
        )
    changed.settings = dataclasses.replace(changed.settings, fine_tune_columns=columns)
    model: CostModel = changed
    return model
