"""A source model adapted to a device with a few measurements of each task.

How much to learn from them, and whether the source helps at all, is decided by cross-validation on
the measured programs alone: each is scored by a model that was not trained on it. The one from
scratch stops by the fold that it is judged on, which favours it.
"""

import copy
import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hetfeat.errors import DataError
from hetfeat.features.batch import Examples
from hetfeat.models.base import CostModel
from hetfeat.models.hyperparameters import build
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import by_group, pairwise_accuracy
from hetfeat.transfer.gate import DEFAULT_GATE, Decision, GateOptions, OwnSide, decide
from hetfeat.transfer.joint import DEFAULT_JOINT, JointOptions, learnt_together

Floats = npt.NDArray[np.float64]

FINE_TUNED, TOGETHER = "fine_tuned", "together"
LEAST_BUDGET = 4
"""Least budget in programs of a task: two folds of two, for a fold of one has no pair to stop a
training by."""


@dataclass(frozen=True)
class FineTuneOptions:
    """How the strength of fine-tuning is chosen by cross-validation.

    Attributes:
        most_folds: Largest number of parts of the cross-validation, default 4; small budgets have
            fewer, for a part needs two programs of a task.
        strengths: Rounds of fine-tuning to choose from, in ascending order, default 0, 10, 30 and
            100; 0, which leaves the source as it is, is one of them.
        stronger: Rounds tried besides where the last of `strengths` was best, default 300: such a
            source says little of the device.
    """

    most_folds: int = 4
    strengths: tuple[int, ...] = (0, 10, 30, 100)
    stronger: int = 300


DEFAULT_FINE_TUNING = FineTuneOptions()


@dataclass(frozen=True)
class FewShot:
    """Records of a device: the measured ones, and those to test on.

    Attributes:
        measured: Examples to learn from, n of them.
        fold: Part of the cross-validation that each belongs to, int64 [n].
        test: The other examples, which take part in nothing but the final figures.
    """

    measured: Examples
    fold: npt.NDArray[np.int64]
    test: Examples

    @property
    def folds(self) -> int:
        """Parts of the cross-validation."""
        return int(self.fold.max()) + 1

    def part(self, fold: int) -> tuple[Examples, Examples, npt.NDArray[np.int64]]:
        """What to learn from, what to judge by, and where the latter is among the measured."""
        rows, others = np.flatnonzero(self.fold == fold), np.flatnonzero(self.fold != fold)
        return self.measured.take(others), self.measured.take(rows), rows


@dataclass(frozen=True)
class Adapted:
    """What adapting came to.

    Attributes:
        model: The source model, fine-tuned on everything measured, or one that learnt them together
            with the source's records.
        way: How it learnt, the better of both on the measured programs: `FINE_TUNED` or `TOGETHER`.
        rounds: Rounds of fine-tuning, chosen as `FineTuneOptions` says; 0 where it learnt together.
        decision: Decision on whether the source helped, judged without the test side.
        pca: PCA on the test side: `source`, `transfer`, `scratch`.
    """

    model: CostModel
    way: str
    rounds: int
    decision: Decision
    pca: dict[str, float]


def few_shot(
    examples: Examples,
    budget: int,
    seed: int,
    tasks: Collection[str] | None = None,
    *,
    most_folds: int = DEFAULT_FINE_TUNING.most_folds,
) -> FewShot:
    """Takes `budget` records of each task as measured, at random; the rest is for testing.

    A task with no more records than that is measured as a whole and not tested.

    Args:
        examples: Examples of one device.
        budget: Number of measurements of each task.
        seed: Seed of the choice: the same seed, the same choice.
        tasks: Hashes of the tasks that are measured, default None for all; the others are tested
            only.
        most_folds: Largest number of parts of the cross-validation, default that of
            `FineTuneOptions`.

    Raises:
        DataError: No task has two records left to test on, or the budget is too small.
    """
    check_budget(budget)
    rng = np.random.default_rng(seed)
    folds = min(most_folds, budget // 2)
    fold = np.full(len(examples), -1)
    most = left = 0  # programs of a task that is measured, and unmeasured ones of any
    for rows in by_group(group_codes(examples)[0]):
        if tasks is not None and examples.task[rows[0]] not in tasks:
            left = max(left, len(rows))
            continue
        measured = rng.permutation(rows)[:budget]
        fold[measured] = np.arange(len(measured)) % folds
        most, left = max(most, len(rows)), max(left, len(rows) - budget)
    if left < 2:
        raise DataError(
            f"--budget-per-task {budget} with records of {most} programs a task at most",
            f"a budget of at most {max(most - 2, 0)}: the other programs are tested on",
            "lower the budget, or measure more programs",
        )
    if most < 2 * folds:
        raise DataError(
            f"--budget-per-task {budget} with records of {most} programs a selected task at most",
            f"at least {2 * folds}, two for each part of the cross-validation",
            "lower the budget, select more tasks, or measure more programs",
        )
    taken = np.flatnonzero(fold >= 0)
    return FewShot(examples.take(taken), fold[taken], examples.take(np.flatnonzero(fold < 0)))


def check_budget(budget: int) -> None:
    """Raises DataError for a budget a task that is too small to decide anything with."""
    if budget < LEAST_BUDGET:
        raise DataError(
            f"--budget-per-task {budget}",
            f"at least {LEAST_BUDGET}: whether the source helps is decided with them",
            "raise the budget",
        )


def adapt(
    source: CostModel,
    kind: str,
    data: FewShot,
    effort: str,
    seed: int,
    on_fold: Callable[[int], None] = lambda done: None,
    *,
    taught: Examples | None = None,
    fine_tuning: FineTuneOptions = DEFAULT_FINE_TUNING,
    joint: JointOptions = DEFAULT_JOINT,
    gate: GateOptions = DEFAULT_GATE,
) -> Adapted:
    """Fine-tunes, trains from scratch, decides on the measured and judges on the rest.

    Args:
        source: Cost model of other devices.
        kind: Name of its kind among the models, for the one from scratch.
        data: Records of the device from `few_shot`.
        effort: Effort of the model from scratch: `quick`, `standard` or `full`.
        seed: Seed of the model from scratch.
        on_fold: Callable that takes the number of folds done, `data.folds` of them in the end; by
            default nothing is told.
        taught: Records of other devices, to be learnt together with the measured ones; None, the
            default, only fine-tunes. For models of trees.
        fine_tuning: Strengths to choose from, default `DEFAULT_FINE_TUNING`.
        joint: How both are learnt together, default `DEFAULT_JOINT`.
        gate: Thresholds of the decision, default `DEFAULT_GATE`.

    Raises:
        DataError: The measurements are too few or too equal to learn from.
    """
    measured = data.measured

    def together(records: Examples) -> CostModel:
        assert taught is not None
        return learnt_together(source, kind, taught, records, effort, seed, joint)

    needed = []

    def scratch_of_fold(train: Examples, valid: Examples) -> CostModel:
        model, rounds = from_scratch(train, valid, kind, effort, seed)
        needed.append(rounds)
        on_fold(len(needed))
        return model

    by_task = tuned_pca(source, data, fine_tuning)
    chosen, way = strongest(by_task), FINE_TUNED
    best, fresh_pca = by_task[chosen], cross_validated(data, scratch_of_fold)
    if taught is not None:
        both = cross_validated(data, lambda train, _: together(train))
        if _mean(both) > _mean(best):
            best, chosen, way = both, 0, TOGETHER
    decision = decide(by_task[0], best, fresh_pca, OwnSide.of(source), gate)
    model = together(measured) if way == TOGETHER else fine_tuned(source, measured, chosen)
    # As many rounds as the folds needed: all measurements are learnt from, as by the other.
    scratch = build(kind, effort, seed, {"rounds": round(float(np.median(needed)))})
    scratch.fit(measured, measured)
    pca = {
        name: mean_pca(each.predict(data.test.batch), data.test)
        for name, each in {"source": source, "transfer": model, "scratch": scratch}.items()
    }
    return Adapted(model, way, chosen, decision, pca)


def cross_validated(data: FewShot, learn: Callable[[Examples, Examples], CostModel]) -> Floats:
    """PCA on the measured programs of each task, each scored by a model that has not seen it.

    Args:
        data: Measured programs and their folds.
        learn: Function that learns from the first examples; the second are those it is judged by.
    """
    scores = np.zeros(len(data.measured))
    for fold in range(data.folds):
        train, valid, rows = data.part(fold)
        told = learn(train, valid).predict(data.measured.batch)
        scores[rows] = centred(told, data.measured)[rows]
    return pca_of_tasks(scores, data.measured)


def tuned_pca(
    source: CostModel, data: FewShot, options: FineTuneOptions = DEFAULT_FINE_TUNING
) -> dict[int, Floats]:
    """PCA on the measured programs of each task, by strength of fine-tuning, cross-validated."""
    judge = without_trace_ranker(source)

    def pca_with(rounds: int) -> Floats:
        return cross_validated(data, lambda train, _: fine_tuned(judge, train, rounds))

    by_task = {rounds: pca_with(rounds) for rounds in options.strengths}
    if strongest(by_task) == options.strengths[-1]:
        by_task[options.stronger] = pca_with(options.stronger)
    return by_task


Rounds = TypeVar("Rounds", int, int | None)


def strongest(by_task: dict[Rounds, Floats]) -> Rounds:
    """The rounds of the highest mean; the fewest of equals."""
    return max(by_task, key=lambda rounds: _mean(by_task[rounds]))


def from_scratch(
    train: Examples, valid: Examples, kind: str, effort: str, seed: int
) -> tuple[CostModel, int]:
    """A model without a source, and the rounds it took to its best."""
    losses: dict[int, float] = {}

    def on_epoch(epoch: int, figures: dict[str, float]) -> None:
        losses[epoch] = figures["valid_loss"]

    model = build(kind, effort, seed, {})
    model.fit(train, valid, on_epoch)
    return model, min(losses, key=losses.__getitem__) + 1


def has_strength(source: CostModel) -> bool:
    """Whether the rounds of its fine-tuning can be set: those of another package may not."""
    return hasattr(getattr(source, "settings", None), "fine_tune_rounds")


def fine_tuned(source: CostModel, records: Examples, rounds: int) -> CostModel:
    """The source after so many rounds, or epochs, on the records."""
    changed: Any = copy.copy(source)
    own = changed.settings
    changed.settings = dataclasses.replace(own, fine_tune_rounds=rounds)
    tuned: Any = changed.fine_tune(records)
    tuned.settings = own  # what these records were worth says nothing of later ones
    model: CostModel = tuned
    return model


def without_trace_ranker(source: CostModel) -> CostModel:
    """The source without what ranks unapplied traces, for where there are none."""
    changed = copy.copy(source)
    changed.trace_ranker = None
    return changed


def centred(scores: Floats, examples: Examples) -> Floats:
    """Logarithms of one model's scores, less their mean in each task.

    Of two models, each may be right of its own programs and offset from the other. Where they
    score parts of a task, that favours whatever learns nothing, as a source left as it is.
    """
    margins, tasks = np.log(scores), group_codes(examples)[0]
    means = np.bincount(tasks, margins) / np.bincount(tasks)
    told: Floats = margins - means[tasks]
    return told


def pca_of_tasks(scores: Floats, examples: Examples) -> Floats:
    """Pairwise comparison accuracy in each task that has a pair that counts."""
    groups = group_codes(examples)[0]
    found = [
        pairwise_accuracy(scores[rows], examples.latency_s[rows], groups[rows])
        for rows in by_group(groups)
    ]
    return np.array([pairs.value for pairs in found if pairs.groups])


def mean_pca(scores: Floats, examples: Examples) -> float:
    """Mean over tasks of the pairwise comparison accuracy; NaN where no pair counts."""
    return _mean(pca_of_tasks(scores, examples))


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")
