"""The contract of a cost model."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from hetfeat.features.batch import Batch, Examples, Features

OnEpoch = Callable[[int, dict[str, float]], None]
"""Called after each epoch (or boosting round) with its number and its figures by name."""


class TraceRanker(Protocol):
    """Ranks traces that nobody has applied yet."""

    @property
    def operators(self) -> frozenset[str]:
        """Operators of the tasks whose traces it can rank."""

    @property
    def own(self) -> frozenset[str]:
        """Operators of which it has learnt custom sketches, too."""

    def predict(self, batch: Batch) -> npt.NDArray[np.float64]:
        """Scores of programs, higher is faster, float64 [n]; they need no per-store features."""

    def fine_tune(self, records: Examples) -> Self:
        """One that has gone on learning from `records`; this one is unchanged."""

    def write(self, folder: Path) -> None:
        """Writes its file beside those of the model that it belongs to."""


class CostModel(Protocol):
    """Predicts how fast programs run, relative to others of the same task and device.

    Scores are strictly positive and higher is faster. The same folder loads to the same
    predictions; nothing is pickled.

    Attributes:
        packages: Packages that loading it needs beside hetfeat, in pip's names.
        trace_ranker: Ranker of traces that nobody has applied yet; None where it has not learnt to
            rank them.
        with_stores: Whether it learnt from per-store features; None where that is not known.
        valid_pca: Pairwise comparison accuracy on the `valid` side of `fit`, mean over tasks; None
            where that is not known. Fine-tuning leaves it as it is.
        chance_error: Standard error of `valid_pca` if the model knew nothing, as `models.chance`
            has it; None where that is not known.

    Examples:
        >>> import hetfeat
        >>> records = hetfeat.RecordStore.open("records")
        >>> model = hetfeat.train_cost_model(records, effort="quick")
        >>> model.save("model")
        >>> again = hetfeat.load_model("model")
        >>> again.parameters == model.parameters
        True
    """

    packages: ClassVar[tuple[str, ...]]
    trace_ranker: TraceRanker | None
    with_stores: bool | None
    valid_pca: float | None
    chance_error: float | None

    @classmethod
    def for_effort(cls, effort: str, seed: int) -> Self:
        """An untrained model with the budget of `quick`, `standard` or `full`."""

    def fit(self, train: Examples, valid: Examples, on_epoch: OnEpoch | None = None) -> None:
        """Learns from `train`; `valid` decides when to stop and calibrates."""

    def learn_unapplied_traces(self, train: Examples, valid: Examples) -> None:
        """Learns to rank traces that nobody has applied, of the records that `fit` learnt from."""

    def predict(self, batch: Features, support: Examples | None = None) -> npt.NDArray[np.float64]:
        """Scores, float64 [n], of the programs of `batch`.

        `support` are measured programs of the same device. A model that can (`attention`) reads
        them and needs no gradient step to adapt; the others leave them alone. Features may not
        tell two tasks apart: `support.predict_beside` hands each task its own programs.
        """

    def fine_tune(self, records: Examples) -> Self:
        """A model adapted to a few measurements of another device; this one is unchanged."""

    def calibrate(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Scores turned into estimates of y = best latency of the task / latency."""

    def importance(self) -> Mapping[str, float]:
        """What each feature column is worth to the model, by name; empty if it cannot tell."""

    def save(self, folder: Path | str) -> None:
        """Writes the model into an empty folder."""

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """The model of a folder written by `save`.

        Raises:
            DataError: The folder is not such a model, or is of other features.
        """

    @property
    def seen(self) -> Mapping[str, Mapping[str, int]]:
        """Records that `fit` and `fine_tune` learnt from: device -> task hash -> count."""

    @property
    def seen_anchors(self) -> Mapping[str, Mapping[str, int]]:
        """The same by `records.anchor_of` instead of task hash."""

    @property
    def parameters(self) -> dict[str, Any]:
        """Hyperparameters by name, as logged."""
