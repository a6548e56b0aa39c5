"""What columns are worth to a model: how much worse it orders programs when one is shuffled."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hetfeat.features import columns
from hetfeat.features.batch import Batch, Examples, Floats
from hetfeat.models.base import CostModel
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import by_group, pairwise_accuracy

PRIMITIVES = "primitives"


def falls(
    shuffled: Mapping[str, npt.NDArray[np.floating]], pca: Callable[[], float], seed: int
) -> dict[str, float]:
    """By how much PCA falls when each of the columns is shuffled, the others as they are.

    Args:
        shuffled: Views of what `pca` reads, by name; afterwards they are as they were.
        pca: Function that scores anew and gives PCA.
        seed: Seed of the shuffles.
    """
    rng = np.random.default_rng(seed)
    whole, found = pca(), {}
    for name, column in shuffled.items():
        kept = column.copy()
        rng.shuffle(column)
        found[name] = whole - pca()
        column[:] = kept
    return found


def permutation_importance(
    model: CostModel, examples: Examples, seed: int = 0, most_programs: int = 500
) -> dict[str, float]:
    """Falls of PCA by column, of those by which it falls, on some of the examples.

    Args:
        model: Model that has been fitted.
        examples: Examples that it did not descend on. Tasks are drawn from them, not programs: a
            program alone has nothing to be compared with.
        seed: Seed of the draw and of the shuffles; 0 by default.
        most_programs: Most programs drawn; 500 by default: all columns of so many take a network a
            few seconds.
    """
    groups = list(by_group(group_codes(examples)[0]))
    order = np.random.default_rng(seed).permutation(len(groups))
    drawn = np.concatenate([groups[i] for i in order])[:most_programs]
    some = examples.take(np.sort(drawn))
    batch = some.batch.loaded()
    some = replace(some, batch=batch)
    codes = group_codes(some)[0]

    def pca() -> float:
        return pairwise_accuracy(model.predict(batch), some.latency_s, codes).value

    return {name: fall for name, fall in falls(_varying(batch), pca, seed).items() if fall > 0}


def _varying(batch: Batch) -> dict[str, Floats]:
    """The columns of a batch in which programs differ; a sequence of primitives as a whole."""
    kinds = {
        "store": (columns.STORE, batch.stores),
        "trace": (columns.TRACE, batch.trace),
        "task": (columns.TASK, batch.task),
        "hardware": (columns.HARDWARE, batch.hardware),
    }
    found = {
        f"{kind}.{column.name}": values[:, i]
        for kind, (own, values) in kinds.items()
        for i, column in enumerate(own)
        if len(np.unique(values[:, i])) > 1
    }
    return found | {PRIMITIVES: batch.steps}
