"""What is thought of candidates while a network is tuned: a source model, or one made meanwhile."""

import logging
import math
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError
from hetfeat.features.assemble import batch_of, examples_of
from hetfeat.features.batch import Examples
from hetfeat.measure.base import DeviceMeasurer
from hetfeat.models.base import CostModel, TraceRanker
from hetfeat.models.hyperparameters import build
from hetfeat.records import Measurement, Program, Task
from hetfeat.schedules.trace import is_ours
from hetfeat.search.evolution import Evolution
from hetfeat.search.trace_mutation import bred
from hetfeat.transfer.finetune import mean_pca, pca_of_tasks, without_draft
from hetfeat.transfer.gate import DEFAULT_GATE, is_at_chance

log = logging.getLogger(__name__)

Floats = npt.NDArray[np.float64]

SCRATCH = "xgb"
"""What is learnt from the measured programs alone."""
FIRST_FIT = 64
"""Measured programs from which a model can learn something."""
GATE_FACTOR = 4
"""The source is compared with none at 64 programs, and whenever there are so many times more."""
FOLDS = 2
VALID_SHARE = 0.2


def trusted(source: CostModel | None) -> CostModel | None:
    """The source, unless it knows nothing of its own devices: with wrong labels, for one."""
    if source is None or not is_at_chance(source.valid_pca):
        return source
    log.warning(
        "the cost model is dropped: when it was trained, its PCA on the valid side was %.3f, and "
        "at least %s is expected; check its records, or train it on more",
        *(source.valid_pca, DEFAULT_GATE.least_valid_pca),
    )
    return None


class Judge:
    """Scores candidates with the source model, fine-tuned on what the device said of others.

    A model that can (`attention`) also reads the measured programs of the candidate's own task, as
    its support set: from the first one on, and those since the last fine-tuning.

    The gate: at 64 measured programs, 256, and so on, the source is compared with a model of the
    measured programs alone, by cross-validation; a source that orders them worse, by more than two
    standard errors over tasks, is dropped, and so is one that orders them no better than chance.
    Its drafts are asked apart: they may be of no use where its scores are.
    Without a source a model from scratch judges once there is enough to learn from; without its
    drafts such ones are learnt, too.

    Args:
        source: Model of other devices or tasks, or None.
        profile: The device.
        seed: Of models from scratch and of the folds.
    """

    def __init__(self, source: CostModel | None, profile: DeviceProfile, seed: int) -> None:
        self.source, self.profile, self.seed = source, profile, seed
        self.model = source
        self._taught_ours = source.draft.own if source and source.draft else None
        self._gate_at = FIRST_FIT
        self._measured: dict[str, list[Measurement]] = {}
        self._support: dict[str, Examples] = {}
        self._own: Counter[str] = Counter()

    def hear(self, found: Sequence[Measurement]) -> None:
        """Takes programs into the support sets of their tasks."""
        for measurement in found:
            program = measurement.program
            self._measured.setdefault(program.task.hash, []).append(measurement)
            self._support.pop(program.task.hash, None)
            self._own[program.task.operator] += is_ours(program.trace)

    def learn(self, known: Sequence[Measurement]) -> None:
        """Takes in everything measured on the device so far."""
        if len(known) < FIRST_FIT:
            return
        records = examples_of(known, self.profile)
        if self.source is not None and len(known) >= self._gate_at:
            self._gate_at = GATE_FACTOR * len(known)
            self._gate(self.source, records)
        if self.source is not None:
            self.model = self.source.fine_tune(records)
        else:
            self.model = self._scratch(records)
        if self.model is not None and self.model.draft is None:
            self.model.learn_drafts(*self._sides(records))

    def guide(self, search: object, task: Task, measurer: DeviceMeasurer) -> None:
        """Lets a task's search ask for the judgement of now, if it is one that does."""
        if not isinstance(search, Evolution):
            return
        search.score = partial(self._score, task) if self.model is not None else None
        draft = self.model.draft if self.model is not None else None
        known = draft is not None and task.operator in draft.operators
        search.in_turns = (
            self.source is not None
            and self._taught_ours is not None
            and task.operator not in self._taught_ours
            and self._own[task.operator] < FIRST_FIT
        )
        # What the device taught tells whether schedules carried over are of use on it. A source
        # would choose what it thinks alike, and the gate would have nothing to tell it by.
        search.judges_starts = self.source is None
        search.draft = partial(self._drafted, task, measurer) if known else None

    def _score(self, task: Task, programs: Sequence[Program]) -> Floats:
        assert self.model is not None
        if task.hash not in self._support:
            measured = self._measured.get(task.hash, [])
            self._support[task.hash] = examples_of(measured, self.profile)
        return self.model.predict(batch_of(programs, self.profile), self._support[task.hash])

    def _drafted(
        self,
        task: Task,
        measurer: DeviceMeasurer,
        parents: Sequence[str],
        count: int,
        rng: random.Random,
    ) -> list[Program]:
        """Programs bred from traces that the draft model ranks."""
        assert self.model is not None and self.model.draft is not None
        draft = self.model.draft

        def rank(traces: Sequence[str]) -> Floats:
            return draft.predict(batch_of([Program(task, t) for t in traces], self.profile))

        return measurer.apply(task, bred(parents, rank, count, rng))

    def _gate(self, source: CostModel, records: Examples) -> None:
        least_pca = DEFAULT_GATE.least_source_pca
        if source.draft and (known := _draft_pca(source.draft, records)) < least_pca:
            source = self.source = without_draft(source)
            log.warning("the cost model's drafts are dropped: their PCA here is %.3f", known)
        kept, fresh = self._cross_validated(source, records)
        if not len(kept):
            return
        lost = fresh - kept
        error = float(lost.std(ddof=1)) / len(lost) ** 0.5 if len(lost) > 1 else math.inf
        own = mean_pca(source.predict(records.batch), records)
        if own < least_pca or lost.mean() > DEFAULT_GATE.standard_errors * error:
            self.source = None
            log.warning(
                "the cost model is dropped: on %d programs measured here its PCA is %.3f, "
                "fine-tuned %.3f, without it %.3f",
                *(len(records), own, kept.mean(), fresh.mean()),
            )

    def _cross_validated(self, source: CostModel, records: Examples) -> tuple[Floats, Floats]:
        """PCA of each task with the source and without; none where the records teach nothing."""
        fold = np.random.default_rng(self.seed).integers(0, FOLDS, len(records))
        with_source, without = np.zeros(len(records)), np.zeros(len(records))
        for number in range(FOLDS):
            rows = np.flatnonzero(fold == number)
            learnt, judged = records.take(np.flatnonzero(fold != number)), records.take(rows)
            scratch = self._scratch(learnt)
            if scratch is None:
                return np.empty(0), np.empty(0)
            with_source[rows] = without_draft(source).fine_tune(learnt).predict(judged.batch)
            without[rows] = scratch.predict(judged.batch)
        return pca_of_tasks(with_source, records), pca_of_tasks(without, records)

    def _scratch(self, records: Examples) -> CostModel | None:
        """A model of the records alone; None where they are too few or too equal."""
        model = build(SCRATCH, "quick", self.seed, {})
        try:
            model.fit(*self._sides(records))
        except DataError:
            return None
        return model

    def _sides(self, records: Examples) -> tuple[Examples, Examples]:
        """What to learn from, and what to stop by."""
        held = np.random.default_rng(self.seed).random(len(records)) < VALID_SHARE
        return records.take(np.flatnonzero(~held)), records.take(np.flatnonzero(held))


def _draft_pca(draft: TraceRanker, records: Examples) -> float:
    """On the programs whose drafts it would rank; NaN where there are none."""
    ranked = np.isin(records.operator.astype(str), list(draft.operators))
    some = records.take(np.flatnonzero(ranked))
    return mean_pca(draft.predict(some.batch.loaded()), some)
