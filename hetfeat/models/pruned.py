"""Pruning of examples in memory, as training does it once the test side is set apart."""

import numpy as np
import numpy.typing as npt

from hetfeat.dataset.prune import choose, light_of
from hetfeat.features.batch import Examples
from hetfeat.models.labels import group_codes


def kept_by_pruning(
    examples: Examples, fraction: float = 0.55, seed: int = 0
) -> npt.NDArray[np.int64]:
    """Positions of the examples that `dataset.prune` keeps, ascending."""
    groups, keys = group_codes(examples)
    programs = np.array([int(key[:16], 16) for key in examples.program.tolist()], np.uint64)
    records = light_of(groups, keys, programs, examples.latency_s)
    return np.flatnonzero(choose(records, fraction, seed))
