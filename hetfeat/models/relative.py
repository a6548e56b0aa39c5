"""A store's quantities in relation to its task and its device, for models that read rows.

Trees compare a column with a constant, so that they must learn anew for each size of a task what
one ratio says of all: how often values are computed again, how much more is touched than the
arguments hold, how evenly the work falls on the threads. All columns follow from those of the
batch.
"""

import numpy as np
import numpy.typing as npt

from hetfeat.features.batch import Floats
from hetfeat.features.columns import BUFFERS, HARDWARE, STORE, TASK, TOUCHED

Doubles = npt.NDArray[np.float64]

_STORE, _TASK, _HARDWARE = (
    {column.name: number for number, column in enumerate(columns)}
    for columns in (STORE, TASK, HARDWARE)
)
_FLOAT_MATH = slice(_STORE["float_mad"], _STORE["float_other"] + 1)


def relative_features(stores: Floats, task: Floats, hardware: Floats) -> Floats:
    """The columns `RELATIVE` of n stores, or sums of stores.

    Args:
        stores: Per-store features, float32 [n, 164].
        task: Features of the task of each, float32 [n, len(columns.TASK)].
        hardware: Features of the device of each, float32 [n, len(columns.HARDWARE)].

    Returns:
        Columns, float32 [n, len(columns.RELATIVE)]; NaN where the device does not have the
        parameter.
    """
    units = _log_extent(stores, "parallel_product") - hardware[:, _HARDWARE["threads"]]
    lanes = _log_extent(stores, "vectorize_product") - hardware[:, _HARDWARE["lanes"]]
    operations = _log_sum(stores[:, _FLOAT_MATH])
    flops, size = task[:, _TASK["flops"]], task[:, _TASK["bytes"]]
    columns = [_filled(units), _filled(lanes), units, lanes, operations - flops]
    for name in TOUCHED:
        touched = _log_sum(stores[:, _buffers(name)])
        columns += [touched - size, touched - flops, touched - operations]
    per_reuse = stores[:, _buffers("unique_bytes_per_reuse")]
    distance = stores[:, _buffers("reuse_distance_bytes")]
    columns += [per_reuse.max(axis=1), _log_sum(per_reuse), distance.max(axis=1)]
    return np.stack(columns, axis=1, dtype=np.float32)


def _filled(log_rounds: Doubles) -> Doubles:
    """Share of the places that hold work, where so many rounds are needed to deal it out."""
    rounds = np.exp2(log_rounds)
    filled: Doubles = rounds / np.ceil(rounds)
    return filled


def _log_extent(stores: Floats, name: str) -> Doubles:
    """log2 of an extent, float64 [n]; 0 without such a loop."""
    return np.log2(np.maximum(_quantities(stores[:, _STORE[name]]), 1))


def _log_sum(logs: Floats) -> Doubles:
    """log2(1 + sum of the quantities), float64 [n]."""
    total: Doubles = _quantities(logs).sum(axis=1)
    return np.log2(1 + total)


def _quantities(logs: Floats) -> Doubles:
    """Quantities of values that are log2(1 + quantity)."""
    return np.exp2(np.abs(logs, dtype=np.float64)) - 1


def _buffers(name: str) -> list[int]:
    return [_STORE[f"buffer{buffer}_{name}"] for buffer in range(BUFFERS)]
