"""Ranks drafts: traces that nobody has applied, by the thousand.

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
from hetfeat.features.drafts import as_drafts
from hetfeat.models.engines import xgb
from hetfeat.models.gbdt import GbdtParameters
from hetfeat.models.side import side_of

FILE = "draft.ubj"
RECORDS = 50_000
"""Records that it learns from at most, drawn at random: it need not be right, only quick."""
SETTINGS = GbdtParameters(rounds=300)
KNOWN_RECORDS = 100
"""Records of an operator from which on its drafts are ranked. Traces of another say little: a model
that had seen no Winograd convolution led to programs of it 1.3 times as slow."""
_OPERATORS = "operators"


@dataclass(frozen=True)
class DraftModel:
    """Trees over traces, tasks and devices.

    Attributes:
        trees: What has been learnt.
        operators: Of the tasks whose drafts it can rank.
    """

    trees: xgb.XgbTrees
    operators: frozenset[str]

    @classmethod
    def fit(cls, train: Examples, valid: Examples, seed: int) -> Self | None:
        """Learns from the traces of both sides; None where a side has nothing to compare."""
        rng = np.random.default_rng(seed)
        known, judged = _drafts_of(train, rng), _drafts_of(valid, rng)
        learn, check = side_of(known, seed=seed), side_of(judged, known, seed=seed)
        if not len(learn.pairs) or not len(check.pairs):
            return None
        names, counts = np.unique(known.operator.astype(str), return_counts=True)
        operators = frozenset(names[counts >= KNOWN_RECORDS].tolist())
        return cls(xgb.train(replace(SETTINGS, seed=seed), learn, check, None), operators)

    def predict(self, batch: Batch) -> npt.NDArray[np.float64]:
        """Scores of programs, higher is faster, float64 [n]; they need no per-store features."""
        return self.trees.margins(as_drafts(batch), None)

    def fine_tune(self, records: Examples) -> Self:
        """A model that has gone on learning from `records`."""
        side = side_of(_drafts_of(records, np.random.default_rng(0)), seed=SETTINGS.seed)
        if not len(side.pairs):
            return self
        return replace(self, trees=xgb.fine_tune(SETTINGS, self.trees, side))

    def write(self, folder: Path) -> None:
        """Writes `FILE`."""
        self.trees.booster.set_attr(**{_OPERATORS: json.dumps(sorted(self.operators))})
        self.trees.booster.save_model(folder / FILE)

    @classmethod
    def read(cls, folder: Path, files: set[str]) -> Self | None:
        """What `write` has written; None where it is not among a model's `files`."""
        if FILE not in files:
            return None
        trees = xgb.trees_of(folder / FILE, SETTINGS)
        return cls(trees, frozenset(json.loads(trees.booster.attr(_OPERATORS))))


def _drafts_of(examples: Examples, rng: Any) -> Examples:
    some = examples
    if len(examples) > RECORDS:
        some = examples.take(np.sort(rng.choice(len(examples), RECORDS, replace=False)))
    return replace(some, batch=joined([as_drafts(p.loaded()) for p in some.batch.pieces()]))
