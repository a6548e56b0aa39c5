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
_OPERATORS, _OWN = "operators", "own"
_PARALLEL = [column.name for column in TRACE].index("primitive_Parallel")
"""Column that custom sketches alone have, before post-processing (`schedules.trace`)."""


@dataclass(frozen=True)
class RankerOptions:
    """What a ranker of unapplied traces learns from.

    Attributes:
        trees: Hyperparameters of its trees; 300 rounds by default, the rest as `GbdtParameters`
            says.
        records: Most records that it learns from, drawn at random; 50,000 by default: it need not
            be right, only quick.
        known_records: Records of an operator from which on its unapplied traces are ranked; 100 by
            default. Traces of another say little: a model that had seen no Winograd convolution led
            to programs of it 1.3 times as slow.
    """

    trees: GbdtParameters = GbdtParameters(rounds=300)
    records: int = 50_000
    known_records: int = 100


@dataclass(frozen=True)
class UnappliedTraceModel:
    """Trees over traces, tasks and devices.

    Attributes:
        trees: Trees that have been trained.
        operators: Operators of the tasks whose unapplied traces it can rank.
        own: Operators of which it has learnt custom sketches, too; none by default.
        options: What it learns from; as `RankerOptions` says by default.
    """

    trees: xgb.XgbTrees
    operators: frozenset[str]
    own: frozenset[str] = frozenset()
    options: RankerOptions = RankerOptions()

    @classmethod
    def fit(
        cls,
        train: Examples,
        valid: Examples,
        seed: int,
        options: RankerOptions = RankerOptions(),
    ) -> Self | None:
        """Learns from the traces of both sides; None where a side has nothing to compare."""
        rng = np.random.default_rng(seed)
        known, judged = (_unapplied_of(side, rng, options.records) for side in (train, valid))
        learn, check = side_of(known, seed=seed), side_of(judged, known, seed=seed)
        if not len(learn.pairs) or not len(check.pairs):
            return None
        names = known.operator.astype(str)
        custom = np.concatenate(known.batch.each(_is_parallel))
        trees = xgb.train(replace(options.trees, seed=seed), learn, check, None)
        least = options.known_records
        return cls(trees, _often(names, least), _often(names[custom], least), options)

    def predict(self, batch: Batch) -> npt.NDArray[np.float64]:
        """Scores of programs, higher is faster, float64 [n]; they need no per-store features."""
        return self.trees.margins(as_unapplied(batch), None)

    def fine_tune(self, records: Examples) -> Self:
        """A model that has gone on learning from `records`."""
        settings, rng = self.options.trees, np.random.default_rng(0)
        side = side_of(_unapplied_of(records, rng, self.options.records), seed=settings.seed)
        if not len(side.pairs):
            return self
        return replace(self, trees=xgb.fine_tune(settings, self.trees, side))

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
        trees = xgb.trees_of(folder / FILE, RankerOptions().trees)
        told = (trees.booster.attr(name) or "[]" for name in (_OPERATORS, _OWN))
        operators, own = (frozenset(json.loads(names)) for names in told)
        return cls(trees, operators, own)


def _often(names: npt.NDArray[np.str_], least: int) -> frozenset[str]:
    found, counts = np.unique(names, return_counts=True)
    return frozenset(found[counts >= least].tolist())


def _unapplied_of(examples: Examples, rng: Any, most: int) -> Examples:
    some = examples
    if len(examples) > most:
        some = examples.take(np.sort(rng.choice(len(examples), most, replace=False)))
    return replace(some, batch=joined(some.batch.each(as_unapplied)))


def _is_parallel(batch: Batch) -> npt.NDArray[np.bool_]:
    return batch.trace[:, _PARALLEL] > 0
