"""A source model adapted to a device with a few measurements of each task.

How much to learn from them, and whether the source helps at all, is decided by cross-validation on
the measured programs alone: each is scored by a model that has not seen it.
"""

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hetfeat.errors import DataError
from hetfeat.features.batch import Examples
from hetfeat.models.base import CostModel
from hetfeat.models.hyperparameters import build
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import by_group, pairwise_accuracy
from hetfeat.transfer.gate import Decision, decide

Floats = npt.NDArray[np.float64]

LEAST_BUDGET = 4
"""Two folds of two: a fold of one program has no pair to stop a training by."""
MOST_FOLDS = 4
STRENGTHS = (0, 10, 30, 100)
"""Rounds of fine-tuning to choose from; none leaves the source as it is."""


@dataclass(frozen=True)
class FewShot:
    """Records of a device: the measured ones, and those to test on.

    Attributes:
        measured: To learn from, n of them.
        fold: Which part of the cross-validation each belongs to, int64 [n].
        test: The rest, which takes part in nothing but the final figures.
    """

    measured: Examples
    fold: npt.NDArray[np.int64]
    test: Examples

    @property
    def folds(self) -> int:
        """Parts of the cross-validation."""
        return int(self.fold.max()) + 1


@dataclass(frozen=True)
class Adapted:
    """What adapting came to.

    Attributes:
        model: The source model, fine-tuned on everything measured.
        rounds: Of fine-tuning, chosen from `STRENGTHS`.
        decision: Whether the source helped, judged without the test side.
        pca: On the test side: `source`, `transfer`, `scratch`.
    """

    model: CostModel
    rounds: int
    decision: Decision
    pca: dict[str, float]


def few_shot(examples: Examples, budget: int, seed: int) -> FewShot:
    """Takes `budget` records of each task as measured, at random; the rest is for testing.

    A task with no more records than that is measured as a whole and not tested.

    Args:
        examples: Records of one device.
        budget: Measurements a task.
        seed: Same seed, same choice.

    Raises:
        DataError: No task has two records left to test on, or the budget is too small.
    """
    if budget < LEAST_BUDGET:
        raise DataError(
            f"--budget-per-task {budget}",
            f"at least {LEAST_BUDGET}: whether the source helps is decided with them",
            "raise the budget",
        )
    rng = np.random.default_rng(seed)
    folds = min(MOST_FOLDS, budget // 2)
    fold = np.full(len(examples), -1)
    most = 0
    for rows in by_group(group_codes(examples)[0]):
        measured = rng.permutation(rows)[:budget]
        fold[measured] = np.arange(len(measured)) % folds
        most = max(most, len(rows))
    if most < budget + 2:
        raise DataError(
            f"--budget-per-task {budget} with records of {most} programs a task at most",
            f"a budget of at most {max(most - 2, 0)}: the other programs are tested on",
            "lower the budget, or measure more programs",
        )
    taken = np.flatnonzero(fold >= 0)
    return FewShot(examples.take(taken), fold[taken], examples.take(np.flatnonzero(fold < 0)))


def adapt(
    source: CostModel,
    kind: str,
    data: FewShot,
    effort: str,
    seed: int,
    on_fold: Callable[[int], None] = lambda done: None,
) -> Adapted:
    """Fine-tunes, trains from scratch, decides on the measured and judges on the rest.

    Args:
        source: Model of other devices.
        kind: Its name among the models, for the one from scratch.
        data: From `few_shot`.
        effort: Of the model from scratch.
        seed: Of the model from scratch.
        on_fold: Called with the number of folds that are done, `data.folds` of them.

    Raises:
        DataError: The measurements are too few or too equal to learn from.
    """
    measured = data.measured
    tuned = {rounds: np.zeros(len(measured)) for rounds in STRENGTHS}
    fresh = np.zeros(len(measured))
    needed = []
    for fold in range(data.folds):
        rows, others = np.flatnonzero(data.fold == fold), np.flatnonzero(data.fold != fold)
        train, valid = measured.take(others), measured.take(rows)
        scratch, rounds = _from_scratch(train, valid, kind, effort, seed)
        needed.append(rounds)
        fresh[rows] = scratch.predict(valid.batch)
        for strength, scores in tuned.items():
            scores[rows] = _fine_tuned(source, train, strength).predict(valid.batch)
        on_fold(fold + 1)

    by_task = {strength: _pca_of_tasks(scores, measured) for strength, scores in tuned.items()}
    means = {strength: _mean(values) for strength, values in by_task.items()}
    chosen = max(means, key=means.__getitem__)  # the least of equals
    decision = decide(by_task[0], by_task[chosen], _pca_of_tasks(fresh, measured))
    model = _fine_tuned(source, measured, chosen)
    # As many rounds as the folds needed: all measurements are learnt from, as by the other.
    scratch = build(kind, effort, seed, {"rounds": round(float(np.median(needed)))})
    scratch.fit(measured, measured)
    return Adapted(
        model,
        chosen,
        decision,
        {
            name: _mean(_pca_of_tasks(each.predict(data.test.batch), data.test))
            for name, each in {"source": source, "transfer": model, "scratch": scratch}.items()
        },
    )


def _from_scratch(
    train: Examples, valid: Examples, kind: str, effort: str, seed: int
) -> tuple[CostModel, int]:
    """A model without a source, and the rounds it took to its best."""
    losses: dict[int, float] = {}

    def on_epoch(epoch: int, figures: dict[str, float]) -> None:
        losses[epoch] = figures["valid_loss"]

    model = build(kind, effort, seed, {})
    model.fit(train, valid, on_epoch)
    return model, min(losses, key=losses.__getitem__) + 1


def _fine_tuned(source: CostModel, records: Examples, rounds: int) -> CostModel:
    changed: Any = copy.copy(source)
    changed.settings = dataclasses.replace(changed.settings, fine_tune_rounds=rounds)
    tuned: CostModel = changed.fine_tune(records)
    return tuned


def _pca_of_tasks(scores: Floats, examples: Examples) -> Floats:
    """Pairwise comparison accuracy in each task that has a pair that counts."""
    groups = group_codes(examples)[0]
    found = [
        pairwise_accuracy(scores[rows], examples.latency_s[rows], groups[rows])
        for rows in by_group(groups)
    ]
    return np.array([pairs.value for pairs in found if pairs.groups])


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")
