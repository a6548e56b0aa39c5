"""What a record store holds, as the paper's Table 3 has it: each operator on each device."""

import json
import math
import statistics
from dataclasses import dataclass, field
from typing import Any

from hetfeat.dataset.store import RecordStore

_COLUMNS = ["device", "operator", "shapes", "flops", "latencies_s"]


@dataclass
class _Row:
    """An operator on a device, while it is counted."""

    shapes: set[str] = field(default_factory=set)
    most_flops: float = -1.0
    largest: str = "[]"
    seconds: float = 0.0
    valid: int = 0
    failed: int = 0


def operators_by_device(store: RecordStore) -> list[dict[str, Any]]:
    """Each operator on each device: how many shapes, the largest, and the mean time.

    Memory is a piece of the store, and the shapes of each task.

    Returns:
        Rows of `operator`, `device`, `kernel_shapes` (different argument shapes), `max_gflop` (of
        one run of the largest), `tensor_shape` (its output), `mean_ms` (of all programs that ran,
        NaN where none did), `records` and `failed`; sorted.
    """
    rows: dict[tuple[str, str], _Row] = {}
    for table in store.scan(_COLUMNS):
        columns = (table[name].to_pylist() for name in _COLUMNS)
        for device, operator, shapes, flops, latencies in zip(*columns, strict=True):
            row = rows.setdefault((operator, device), _Row())
            row.shapes.add(shapes)
            if flops > row.most_flops:
                row.most_flops, row.largest = flops, shapes
            if latencies:
                row.seconds += statistics.median(latencies)
                row.valid += 1
            else:
                row.failed += 1
    return [
        {
            "operator": operator,
            "device": device,
            "kernel_shapes": len(row.shapes),
            "max_gflop": row.most_flops / 1e9,
            "tensor_shape": (json.loads(row.largest) or [[]])[-1],
            "mean_ms": 1e3 * row.seconds / row.valid if row.valid else math.nan,
            "records": row.valid + row.failed,
            "failed": row.failed,
        }
        for (operator, device), row in sorted(rows.items())
    ]
