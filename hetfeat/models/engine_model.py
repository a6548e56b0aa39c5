"""The contract of a cost model, kept once: engines learn, the rest is the same for all."""

import dataclasses
import importlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from hetfeat.dataset.splits import task_units
from hetfeat.errors import DataError
from hetfeat.features import columns
from hetfeat.features.batch import Batch, Examples, Features, have_stores
from hetfeat.models.base import OnEpoch, TraceRanker
from hetfeat.models.calibration import Calibration, fit_calibration
from hetfeat.models.chance import chance_error
from hetfeat.models.labels import add_counts, anchors_seen, records_seen
from hetfeat.models.metrics import pairwise_accuracy
from hetfeat.models.persist import read_head, write_folder
from hetfeat.models.training_set import Side, refuse_empty, side_of

if TYPE_CHECKING:
    from hetfeat.models.trace_ranker import RankerOptions, UnappliedTraceModel

Floats = npt.NDArray[np.float64]

COLUMNS = {
    "store": columns.STORE,
    "relative": columns.RELATIVE,
    "trace": columns.TRACE,
    "task": columns.TASK,
    "hardware": columns.HARDWARE,
}
_LARGEST_MARGIN = 30.0
"""exp of it is far from overflow and beyond any difference that matters."""


class Fitted(Protocol):
    """What an engine has learnt; never changed."""

    def margins(self, batch: Batch, support: Examples | None) -> Floats:
        """The logit of y as far as the loss gives it a scale, float64 [n]."""

    def importance(self) -> dict[str, float]:
        """What each feature column is worth, by name; empty if the engine cannot tell."""

    def write(self, folder: Path) -> None:
        """Writes the engine's own files, none of them a pickle."""


class Engine(Protocol):
    """A module that learns. `settings` are those of the model that names it."""

    DAMAGED: tuple[type[Exception], ...]
    """What `read` raises of files that are not its own."""

    def train(self, settings: Any, train: Side, valid: Side, on_epoch: OnEpoch | None) -> Fitted:
        """Learns from `train` until `valid` improves no more."""

    def fine_tune(self, settings: Any, fitted: Any, records: Side) -> Fitted:
        """Goes on from `fitted`, which stays as it was, for `settings.fine_tune_rounds`."""

    def read(self, folder: Path, files: set[str], settings: Any) -> Fitted:
        """What `Fitted.write` has written; only `files` have had their digests checked."""


class EngineModel:
    """A cost model around an engine. Its margin is the logit of y; its score exp(margin).

    Attributes:
        name: Name of the model in `models.registry.MODELS`.
        engine: Module of the engine.
        packages: Packages that the engine needs to be installed, in pip's names.
        defaults: Hyperparameters: a frozen dataclass with at least `rounds`, `fine_tune_rounds` and
            `seed`.
        rounds: Most epochs or boosting rounds, by effort.
        reads_support: Whether `predict` reads a support set; False by default.
    """

    name: ClassVar[str]
    engine: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    defaults: ClassVar[Any]
    rounds: ClassVar[dict[str, int]]
    reads_support: ClassVar[bool] = False

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings or self.defaults
        self._fitted: Fitted | None = None
        self._calibration: Calibration | None = None
        self.trace_ranker: TraceRanker | None = None
        self.seen: dict[str, dict[str, int]] = {}
        self.seen_anchors: dict[str, dict[str, int]] = {}
        self.with_stores: bool | None = None
        self.valid_pca: float | None = None
        self.chance_error: float | None = None

    @classmethod
    def for_effort(cls, effort: str, seed: int) -> Self:
        """An untrained model with the budget of an effort."""
        return cls(dataclasses.replace(cls.defaults, rounds=cls.rounds[effort], seed=seed))

    @property
    def parameters(self) -> dict[str, Any]:
        """Hyperparameters by name, as logged."""
        return dataclasses.asdict(self.settings)

    @property
    def chosen(self) -> dict[str, float]:
        """What training chose by the valid side, by name, as logged."""
        return {}

    def fit(self, train: Examples, valid: Examples, on_epoch: OnEpoch | None = None) -> None:
        """Learns from `train` (one task is enough) until `valid` improves no more.

        A failed program has y = 0.

        Raises:
            DataError: A side is empty or has no two programs of a task that differ, or a record
                cannot be right.
        """
        seed = self.settings.seed
        learn, check = side_of(train, seed=seed), side_of(valid, train, seed=seed)
        refuse_empty(learn, "train")
        refuse_empty(check, "valid")
        self._fitted = self._engine().train(self.settings, learn, check, on_epoch)
        self.with_stores = have_stores(train.batch)
        scores = self.predict(valid.batch)
        self._calibration = fit_calibration(scores, check.y)
        judged = pairwise_accuracy(scores, valid.latency_s, check.groups)
        self.valid_pca = self.chance_error = None
        if judged.groups:
            self.valid_pca = judged.value
            self.chance_error = chance_error(valid.latency_s, check.groups, task_units(valid))
        self.trace_ranker = None
        self.seen = records_seen(train, valid)
        self.seen_anchors = anchors_seen(train, valid)

    def learn_unapplied_traces(
        self, train: Examples, valid: Examples, options: "RankerOptions | None" = None
    ) -> None:
        """Learns to rank traces that nobody has applied, of the records that `fit` learnt from.

        Args:
            train: Examples that are learnt from.
            valid: Examples that end the training.
            options: What is learnt from; None, the default, as `RankerOptions` says.
        """
        named = {"options": options} if options else {}
        self.trace_ranker = _unapplied_trace_model().fit(train, valid, self.settings.seed, **named)

    def predict(self, batch: Features, support: Examples | None = None) -> Floats:
        """Scores, float64 [n]; only some engines use `support`."""
        fitted = self.fitted()
        if not len(batch):
            return np.empty(0)
        known = self._as_learnt(support) if support is not None and len(support) else None
        margins = np.concatenate(batch.each(partial(_margins, fitted, self.with_stores, known)))
        scores: Floats = np.exp(np.clip(margins, -_LARGEST_MARGIN, _LARGEST_MARGIN))
        return scores

    def fine_tune(self, records: Examples) -> Self:
        """A copy that has gone on learning from `records`; the calibration is kept.

        Where no two records of a task differ there is nothing to learn: the copy is equal.
        """
        adapted = type(self)(self.settings)
        adapted._fitted, adapted._calibration = self.fitted(), self._calibration
        adapted.trace_ranker = self.trace_ranker
        adapted.seen = add_counts(self.seen, records_seen(records))
        adapted.seen_anchors = add_counts(self.seen_anchors, anchors_seen(records))
        adapted.with_stores = self.with_stores
        adapted.valid_pca, adapted.chance_error = self.valid_pca, self.chance_error
        records = self._as_learnt(records)
        side = side_of(records, seed=self.settings.seed)
        if len(side.pairs) and self.settings.fine_tune_rounds:
            adapted._fitted = self._engine().fine_tune(self.settings, self._fitted, side)
            adapted.trace_ranker = (
                self.trace_ranker.fine_tune(records) if self.trace_ranker else None
            )
        return adapted

    def _as_learnt(self, records: Examples) -> Examples:
        """Without stores where none were learnt from: to such a model they mean nothing."""
        if self.with_stores is not False:
            return records
        return dataclasses.replace(records, batch=records.batch.loaded().without_stores())

    def calibrate(self, scores: Floats) -> Floats:
        """Estimates of y, float64 [n] in [0, 1]."""
        self.fitted()
        assert self._calibration is not None
        return self._calibration(scores)

    def importance(self) -> dict[str, float]:
        """What each feature column is worth, by name; empty if the engine cannot tell."""
        return self.fitted().importance()

    def save(self, folder: Path | str) -> None:
        """Writes the model into an absent or empty folder, in one step."""
        fitted = self.fitted()
        assert self._calibration is not None
        head = {
            "model": self.name,
            "columns": {kind: columns.labels(own) for kind, own in COLUMNS.items()},
            "parameters": self.parameters,
            "calibration": dataclasses.asdict(self._calibration),
            "seen": self.seen,
            "seen_anchors": self.seen_anchors,
            "with_stores": self.with_stores,
            "valid_pca": self.valid_pca,
            "chance_error": self.chance_error,
        }

        def write(into: Path) -> None:
            fitted.write(into)
            if self.trace_ranker:
                self.trace_ranker.write(into)

        write_folder(Path(folder), head, write)

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """The model of a folder written by `save`.

        Raises:
            DataError: The folder is not such a model, is damaged, or is of other features.
        """
        folder = Path(folder)
        head = read_head(folder)
        engine = cls._engine()
        misfits: tuple[type[Exception], ...] = (
            *(KeyError, TypeError, ValueError, RecursionError, MemoryError, OverflowError),
            *engine.DAMAGED,
        )
        try:
            recorded = head["columns"]
            for kind, current in COLUMNS.items():
                columns.refuse_other_columns(recorded.get(kind, []), current, f"model '{folder}'")
            model = cls(_settings(cls.defaults, head["parameters"]))
            curve = head["calibration"]
            model._calibration = Calibration(tuple(curve["score"]), tuple(curve["y"]))
            model.seen = head["seen"]
            model.seen_anchors = head["seen_anchors"]
            model.with_stores = head["with_stores"]
            model.valid_pca = head.get("valid_pca")  # not in the first models' folders
            model.chance_error = head.get("chance_error")  # nor this
            model._fitted = engine.read(folder, set(head["files"]), model.settings)
            model.trace_ranker = _unapplied_trace_model().read(folder, set(head["files"]))
        except misfits as error:
            raise DataError(
                f"model '{folder}' whose contents do not fit together ({error})",
                "a folder written by hetfeat",
                "pull or train the model again",
            ) from error
        return model

    @classmethod
    def _engine(cls) -> Engine:
        found: Any = importlib.import_module(cls.engine)
        engine: Engine = found
        return engine

    def fitted(self) -> Fitted:
        """What the engine has learnt."""
        if self._fitted is None:
            raise DataError("an untrained model", "one that was fitted or loaded", "call fit")
        return self._fitted


def _margins(
    fitted: Fitted, with_stores: bool | None, known: Examples | None, batch: Batch
) -> Floats:
    """Margins of a batch as such a model sees it, perhaps in another process."""
    return fitted.margins(batch.without_stores() if with_stores is False else batch, known)


def _settings(defaults: Any, given: dict[str, Any]) -> Any:
    """Hyperparameters, each of the type of its default."""
    for name, value in given.items():
        if type(value) is not type(getattr(defaults, name, value)):
            raise TypeError(f"hyperparameter {name} is {value!r}")
    return type(defaults)(**given)


def _unapplied_trace_model() -> "type[UnappliedTraceModel]":
    """Its trees are XGBoost's, which is loaded where it is used."""
    from hetfeat.models.trace_ranker import UnappliedTraceModel

    return UnappliedTraceModel
