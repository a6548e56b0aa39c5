"""What is thought of candidates while a network is tuned: a source model, or one made meanwhile."""

import logging
import math
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError
from hetfeat.features.assemble import batch_of, examples_of
from hetfeat.features.batch import Examples
from hetfeat.models.base import CostModel, TraceRanker
from hetfeat.models.hyperparameters import build
from hetfeat.models.support import predict_beside
from hetfeat.progress import stage
from hetfeat.records import Measurement, Program, Task
from hetfeat.schedules.trace import is_custom_sketch
from hetfeat.search.base import Exploration, RankTraces, Score
from hetfeat.transfer.finetune import (
    DEFAULT_FINE_TUNING,
    centred,
    fine_tuned,
    has_strength,
    mean_pca,
    pca_of_tasks,
    strongest,
    without_trace_ranker,
)
from hetfeat.transfer.gate import DEFAULT_GATE, OwnSide

log = logging.getLogger(__name__)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GuidanceConfig:
    """When the guidance learns, and how its gate compares models.

    Attributes:
        first_fit: Measured programs from which a model can learn something, and with which the
            gate is asked first; 64 by default.
        refit_every: Measured programs after which it learns again; 64 by default.
        gate_factor: Factor on the measured programs from one question to the gate to the next; 4
            by default.
        folds: Parts of the gate's cross-validation; 2 by default.
        valid_share: Share of the measured programs that training is stopped by; 0.2 by default.
        scratch_model: Name of the model that learns from the measured programs alone; `xgb` by
            default.
        strengths: Rounds of fine-tuning that the gate chooses among, in ascending order; those of
            `FineTuneOptions` by default.
    """

    first_fit: int = 64
    refit_every: int = 64
    gate_factor: int = 4
    folds: int = 2
    valid_share: float = 0.2
    scratch_model: str = "xgb"
    strengths: tuple[int, ...] = DEFAULT_FINE_TUNING.strengths


def refuse_source_at_chance(source: CostModel | None) -> CostModel | None:
    """The source, unless it knows nothing of its own devices: with wrong labels, for one."""
    own = OwnSide.of(source) if source is not None else None
    if own is None or not own.is_at_chance():
        return source
    log.warning(
        "the cost model is dropped: when it was trained, its PCA on the valid side was %.3f, and "
        "at least %.3f tells it from chance; check its records, or train it on more",
        *(own.pca, own.least()),
    )
    return None


class ModelGuidance:
    """Scores candidates with the source model, fine-tuned on what the device said of others.

    A model that can (`attention`) also reads the measured programs of the candidate's own task, as
    its support set: from the first one on, and those since the last fine-tuning.

    The gate: at 64 measured programs, 256, and so on, the source is compared with a model of the
    measured programs alone, by cross-validation; a source that orders them worse, by more than two
    standard errors over tasks, is dropped, and so is one that orders them no better than chance.
    The same cross-validation chooses for how many rounds it is fine-tuned until the next time.
    Its ranker of unapplied traces is asked apart: it may be of no use where the scores are.
    Without a source a model from scratch scores once there is enough to learn from; without a
    ranker of traces such a one is learnt, too.

    Args:
        source: Model of other devices or tasks, or None.
        profile: Device that is tuned for.
        seed: Seed of models from scratch and of the folds.
        config: Settings; those of `GuidanceConfig` by default.
    """

    def __init__(
        self,
        source: CostModel | None,
        profile: DeviceProfile,
        seed: int,
        config: GuidanceConfig = GuidanceConfig(),
    ) -> None:
        self.source, self.profile, self.seed, self.config = source, profile, seed, config
        self.model = source
        self._custom_learnt = source.trace_ranker.own if source and source.trace_ranker else None
        self._gate_at = config.first_fit
        self._refit_at = 0
        self._rounds: int | None = None
        self._measured: dict[str, list[Measurement]] = {}
        self._support: dict[str, Examples] = {}
        self._custom_measured: Counter[str] = Counter()
        self._asking = threading.RLock()

    def for_task(self, task: Task) -> "TaskGuidance":
        """What it says of one task, whenever it is asked."""
        return TaskGuidance(self, task)

    def add_to_support_sets(self, measurements: Sequence[Measurement]) -> None:
        """Takes programs into the support sets of their tasks."""
        for measurement in measurements:
            key = measurement.program.task.hash
            self._measured.setdefault(key, []).append(measurement)
            self._support.pop(key, None)

    def learn_when_due(self, measurements: Sequence[Measurement]) -> None:
        """Learns at once at first, and then whenever there are `refit_every` more programs.

        Args:
            measurements: Everything measured on the device so far.
        """
        if len(measurements) >= self._refit_at:
            self._refit_at = len(measurements) + self.config.refit_every
            with stage("fitting"):
                self.learn(measurements)

    def learn(self, measurements: Sequence[Measurement]) -> None:
        """Learns from everything measured on the device so far."""
        # Counted here, not as measurements come: what is explored changes with the model.
        self._custom_measured = Counter(
            m.program.task.operator for m in measurements if is_custom_sketch(m.program.trace)
        )
        if len(measurements) < self.config.first_fit:
            return
        records = examples_of(measurements, self.profile)
        if self.source is not None and len(measurements) >= self._gate_at:
            self._gate_at = self.config.gate_factor * len(measurements)
            self._gate(self.source, records)
        if self.source is not None:
            self.model = _learnt(self.source, records, self._rounds)
        else:
            self.model = self._fit_from_scratch(records)
        if self.model is not None and self.model.trace_ranker is None:
            self.model.learn_unapplied_traces(*self._split(records))

    def score(self, task: Task, programs: Sequence[Program]) -> Floats:
        """Scores of a task's programs, float64 [n]; there must be a model.

        Threads that choose for several tasks take turns: not every model may be asked at once.
        """
        assert self.model is not None
        with self._asking:
            if task.hash not in self._support:
                measured = self._measured.get(task.hash, [])
                self._support[task.hash] = examples_of(measured, self.profile)
            return self.model.predict(batch_of(programs, self.profile), self._support[task.hash])

    def rank(self, ranker: "TraceRanker", task: Task, traces: Sequence[str]) -> Floats:
        """Scores of unapplied traces of a task, float64 [n]; threads take turns."""
        programs = [Program(task, trace) for trace in traces]
        with self._asking:
            return ranker.predict(batch_of(programs, self.profile))

    def explores(self, task: Task) -> Exploration:
        """What to try of a task whatever the scores."""
        learnt = self._custom_learnt
        return Exploration(
            reserve_custom_sketches=self.source is not None
            and learnt is not None
            and task.operator not in learnt
            and self._custom_measured[task.operator] < self.config.first_fit,
            # What the device taught tells whether schedules carried over are of use on it. A
            # source would choose what it thinks alike, and the gate could not tell it by them.
            score_warm_starts=self.source is None,
        )

    def _gate(self, source: CostModel, records: Examples) -> None:
        if (
            source.trace_ranker
            and (pca := _ranker_pca(source.trace_ranker, records)) < DEFAULT_GATE.least_source_pca
        ):
            source = self.source = without_trace_ranker(source)
            log.warning(
                "the cost model's ranks of unapplied traces are dropped: their PCA here is %.3f",
                pca,
            )
        by_rounds, fresh = self._cross_validated(source, records)
        if not len(fresh):
            return
        self._rounds = strongest(by_rounds)
        kept = by_rounds[self._rounds]
        log.info(
            "on %d programs measured here the cost model is fine-tuned for %s rounds",
            *(len(records), "its own" if self._rounds is None else self._rounds),
        )
        lost = fresh - kept
        error = float(lost.std(ddof=1)) / len(lost) ** 0.5 if len(lost) > 1 else math.inf
        source_pca = mean_pca(source.predict(records.batch), records)
        if (
            source_pca < DEFAULT_GATE.least_source_pca
            or lost.mean() > DEFAULT_GATE.standard_errors * error
        ):
            self.source = None
            log.warning(
                "the cost model is dropped: on %d programs measured here its PCA is %.3f, "
                "fine-tuned %.3f, without it %.3f",
                *(len(records), source_pca, kept.mean(), fresh.mean()),
            )

    def _cross_validated(
        self, source: CostModel, records: Examples
    ) -> tuple[dict[int | None, Floats], Floats]:
        """PCA of each task by rounds of fine-tuning and without a source.

        Nothing where the records teach nothing. A model whose strength cannot be set has None.
        """
        folds, judge = self.config.folds, without_trace_ranker(source)
        strengths = self.config.strengths if has_strength(source) else (None,)
        fold = np.random.default_rng(self.seed).integers(0, folds, len(records))
        with_source = {rounds: np.zeros(len(records)) for rounds in strengths}
        without = np.zeros(len(records))
        for number in range(folds):
            rows = np.flatnonzero(fold == number)
            learnt = records.take(np.flatnonzero(fold != number))
            scratch = self._fit_from_scratch(learnt)
            if scratch is None:
                return {}, np.empty(0)
            for rounds, scores in with_source.items():
                told = predict_beside(_learnt(judge, learnt, rounds), records, learnt)
                scores[rows] = centred(told, records)[rows]
            without[rows] = centred(scratch.predict(records.batch), records)[rows]
        by_rounds = {n: pca_of_tasks(scores, records) for n, scores in with_source.items()}
        return by_rounds, pca_of_tasks(without, records)

    def _fit_from_scratch(self, records: Examples) -> CostModel | None:
        """A model of the records alone; None where they are too few or too equal."""
        model = build(self.config.scratch_model, "quick", self.seed, {})
        try:
            model.fit(*self._split(records))
        except DataError:
            return None
        return model

    def _split(self, records: Examples) -> tuple[Examples, Examples]:
        """What to learn from, and what to stop by."""
        held = np.random.default_rng(self.seed).random(len(records)) < self.config.valid_share
        return records.take(np.flatnonzero(~held)), records.take(np.flatnonzero(held))


@dataclass(frozen=True)
class TaskGuidance:
    """The `Guidance` of one task's search.

    Attributes:
        models: Guidance of all tasks, which learns as measurements come in.
        task: Task whose candidates are scored.
    """

    models: ModelGuidance
    task: Task

    @property
    def score(self) -> Score | None:
        """See `Guidance.score`."""
        return partial(self.models.score, self.task) if self.models.model is not None else None

    @property
    def rank_traces(self) -> RankTraces | None:
        """See `Guidance.rank_traces`."""
        ranker = self.models.model.trace_ranker if self.models.model is not None else None
        if ranker is None or self.task.operator not in ranker.operators:
            return None
        return partial(self.models.rank, ranker, self.task)

    @property
    def exploration(self) -> Exploration:
        """See `Guidance.exploration`."""
        return self.models.explores(self.task)


def _learnt(source: CostModel, records: Examples, rounds: int | None) -> CostModel:
    """The source after so many rounds on the records, its own number of them for None.

    What ranks unapplied traces is no part of the choice, and goes on learning.
    """
    if rounds is None:
        return source.fine_tune(records)
    model = fine_tuned(source, records, rounds)
    if not rounds and source.trace_ranker:
        model.trace_ranker = source.trace_ranker.fine_tune(records)
    return model


def _ranker_pca(ranker: "TraceRanker", records: Examples) -> float:
    """PCA on the programs whose traces it would rank; NaN where there are none."""
    ranked = np.isin(records.operator.astype(str), list(ranker.operators))
    some = records.take(np.flatnonzero(ranked))
    return mean_pca(ranker.predict(some.batch.loaded()), some)
