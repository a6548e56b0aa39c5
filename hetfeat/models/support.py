"""Scores with measured programs beside those that are asked about, task by task.

Tasks are told apart by their hash: two of them may have the same features.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetfeat.features.batch import Examples
from hetfeat.models.base import CostModel
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import GroupPairs, by_group, pairs_of_groups

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SUPPORTS = (8, 32)
"""Measured programs of a task beside which a model is judged."""


@dataclass(frozen=True)
class Supported:
    """Pairs of each task, both ways, among the programs that were not measured.

    Attributes:
        beside: Pairs of each task as scored beside its measured programs.
        alone: The same programs' pairs as scored without.
        rows: Position in the test side of a program of each task, int64 [tasks].
    """

    beside: list[GroupPairs]
    alone: list[GroupPairs]
    rows: Ints


def reads_support(model: CostModel) -> bool:
    """Whether measured programs of a task change what the model says of others."""
    return bool(getattr(model, "reads_support", False))


def predict_beside(model: CostModel, asked: Examples, measured: Examples) -> Floats:
    """Scores of programs, each beside the measured ones of its own task on its own device.

    Args:
        model: Model that is asked.
        asked: Programs to score, n of them; their latencies are not looked at.
        measured: Programs whose latencies are known.
    """
    if not reads_support(model) or not len(measured):
        return model.predict(asked.batch)
    rows_of: dict[tuple[str, str], Ints] = {}
    groups, keys = group_codes(measured)
    for rows in by_group(groups):
        rows_of[keys[groups[rows[0]]]] = rows
    scores = np.empty(len(asked))
    groups, keys = group_codes(asked)
    for rows in by_group(groups):
        known = rows_of.get(keys[groups[rows[0]]])
        support = None if known is None else measured.take(known)
        scores[rows] = model.predict(asked.batch.take(rows), support)
    return scores


def judge_beside(
    model: CostModel,
    test: Examples,
    alone: Floats,
    seed: int,
    counts: Sequence[int] = SUPPORTS,
    *,
    least_asked: int = 8,
) -> dict[int, Supported]:
    """How well the rest of each task is ordered once some of its programs were measured.

    Args:
        model: Model that is judged.
        test: Programs of the test side.
        alone: Scores of them without a support set, float64 [n].
        seed: Seed of the choice of what was measured: the first of one order, so that 32 hold 8.
        counts: Numbers of measured programs; `SUPPORTS` by default.
        least_asked: Least number of programs left of a task that takes part; 8 by default.
    """
    rng = np.random.default_rng(seed)
    groups = group_codes(test)[0]
    drawn = [rng.permutation(rows) for rows in by_group(groups)]
    found = {}
    for count in counts:
        tasks = [rows for rows in drawn if len(rows) >= count + least_asked]
        if not tasks:
            continue
        measured = test.take(np.concatenate([rows[:count] for rows in tasks]))
        asked = np.concatenate([rows[count:] for rows in tasks])
        programs, own = test.take(asked), groups[asked]
        reads = reads_support(model)
        scores = predict_beside(model, programs, measured) if reads else alone[asked]
        told, plain = (
            [pairs for pairs in pairs_of_groups(each, programs.latency_s, own) if pairs.pairs]
            for each in (scores, alone[asked])
        )
        rows_there = [asked[pairs.row] for pairs in told]
        found[count] = Supported(told, plain, np.array(rows_there, np.int64))
    return found
