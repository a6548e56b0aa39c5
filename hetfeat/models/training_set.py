"""Measured programs as training sees them: labels, groups and pairs made once for any engine."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetfeat.errors import DataError
from hetfeat.features.batch import Batch, Examples
from hetfeat.models.labels import best_latencies, group_codes, labels
from hetfeat.models.objective import Objective
from hetfeat.models.pairs import Pairs, pairs_of


@dataclass(frozen=True)
class Side:
    """Examples with what a loss needs of them.

    Attributes:
        examples: Measured programs, n of them.
        y: Labels, float64 [n].
        groups: Code of each program's task on a device, int64 [n].
        pairs: Pairs of programs of a group that differ by more than the noise.
    """

    examples: Examples
    y: npt.NDArray[np.float64]
    groups: npt.NDArray[np.int64]
    pairs: Pairs

    def objective(self, point_weight: float) -> Objective:
        """The loss over these examples."""
        return Objective(self.pairs, self.y, point_weight)


def side_of(examples: Examples, *known: Examples, seed: int) -> Side:
    """A side whose best latencies are those of the examples and of `known`.

    Raises:
        DataError: A latency is not positive, or a feature that every device has is not finite.
    """
    _refuse_impossible(examples)
    best = best_latencies(examples, *known)
    groups = group_codes(examples)[0]
    return Side(examples, labels(examples, best), groups, pairs_of(examples, seed))


def refuse_empty(side: Side, name: str) -> None:
    """Raises where there is nothing to compare.

    Raises:
        DataError: No two programs of a task differ.
    """
    if not len(side.pairs):
        raise DataError(
            f"a {name} side of {len(side.examples)} records with no two programs of a task that "
            "differ in latency",
            "several programs a task, of different latencies",
            "measure more programs a task",
        )


def _refuse_impossible(examples: Examples) -> None:
    """NaN is a latency (the program failed) and a hardware figure (the class has none)."""
    measured = examples.latency_s[~np.isnan(examples.latency_s)]
    wrong = {
        "latencies that are not positive": not (np.isfinite(measured) & (measured > 0)).all(),
        "features that are not finite": not all(examples.batch.each(_is_finite)),
    }
    if found := [name for name, there in wrong.items() if there]:
        raise DataError(
            f"{len(examples)} records with {' and '.join(found)}",
            "latencies in seconds, NaN for a failed program, and finite features",
            "collect or import these records again",
        )


def _is_finite(batch: Batch) -> bool:
    parts = (batch.stores, batch.trace, batch.steps, batch.task)
    return all(bool(np.isfinite(part).all()) for part in parts)
