"""Ranks unapplied traces, by the thousand.

Applying a trace, post-processing it and extracting its features takes some 15 ms; varying its
decisions takes microseconds. What the decisions alone say of a program orders it nearly as well
(docs/models.md), well enough to choose what is worth applying.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hetfeat.features.batch import Batch, Examples, joined
from hetfeat.features.columns import TRACE
from hetfeat.features.unapplied_traces import as_unapplied
from hetfeat.models.engines import xgb
from hetfeat.models.gbdt_parameters import GbdtParameters
from hetfeat.models.training_set import side_of

FILE = "draft.ubj"
RECORDS = 50_000
"""Records that it learns from at most, drawn at random: it need not be right, only quick."""
SETTINGS = GbdtParameters(rounds=300)
KNOWN_RECORDS = 100
"""Records of an operator from which on its traces are ranked. Traces of another say little: a model
that had seen no Winograd convolution led to programs of it 1.3 times as slow."""
_OPERATORS, _OWN = "operators", "own"
_PARALLEL = [column.name for column in TRACE].index("primitive_Parallel")
"""Column that custom sketches alone have, before post-processing (`schedules.trace`)."""


@dataclass(frozen=True)
class UnappliedTraceModel:
    """Trees over traces, tasks and devices.

    Attributes:
        trees: Trees that have been trained.
        operators: Operators of the tasks whose unapplied traces it can rank.
        own: Operators of which it has learnt custom sketches, too; none by default.
    """

    trees: xgb.XgbTrees
    operators: frozenset[str]
    own: frozenset[str] = frozenset()

    @classmethod
    def fit(cls, train: Examples, valid: Examples, seed: int) -> Self | None:
        """Learns from the traces of both sides; None where a side has nothing to compare."""
        rng = np.random.default_rng(seed)
        known, judged = _unapplied_of(train, rng), _unapplied_of(valid, rng)
        learn, check = side_of(known, seed=seed), side_of(judged, known, seed=seed)
        if not len(learn.pairs) or not len(check.pairs):
            return None
        names = known.operator.astype(str)
        custom = np.concatenate([p.loaded().trace[:, _PARALLEL] > 0 for p in known.batch.pieces()])
        trees = xgb.train(replace(SETTINGS, seed=seed), learn, check, None)
        return cls(trees, _often(names), _often(names[custom]))

    def predict(self, batch: Batch) -> npt.NDArray[np.float64]:
        """Scores of programs, higher is faster, float64 [n]; they need no per-store features."""
        return self.trees.margins(as_unapplied(batch), None)

    def fine_tune(self, records: Examples) -> Self:
        """A model that has gone on learning from `records`."""
        side = side_of(_unapplied_of(records, np.random.default_rng(0)), seed=SETTINGS.seed)
        if not len(side.pairs):
            return self
        return replace(self, trees=xgb.fine_tune(SETTINGS, self.trees, side))

    def write(self, folder: Path) -> None:
        """Writes `FILE`."""
        named = {_OPERATORS: self.operators, _OWN: self.own}
        self.trees.booster.set_attr(**{k: json.dumps(sorted(v)) for k, v in named.items()})
        self.trees.booster.save_model(folder / FILE)

    @classmethod
    def read(cls, folder: Path, files: set[str]) -> Self | None:
        """What `write` has written; None where it is not among a model's `files`."""
        if FILE not in files:
            return None
        trees = xgb.trees_of(folder / FILE, SETTINGS)
        told = (trees.booster.attr(name) or "[]" for name in (_OPERATORS, _OWN))
        return cls(trees, *(frozenset(json.loads(names)) for names in told))


def _often(names: npt.NDArray[np.str_]) -> frozenset[str]:
    found, counts = np.unique(names, return_counts=True)
    return frozenset(found[counts >= KNOWN_RECORDS].tolist())


def _unapplied_of(examples: Examples, rng: Any) -> Examples:
    some = examples
    if len(examples) > RECORDS:
        some = examples.take(np.sort(rng.choice(len(examples), RECORDS, replace=False)))
    return replace(some, batch=joined([as_unapplied(p.loaded()) for p in some.batch.pieces()]))
