"""What a store holds, counted in one pass."""

from collections import Counter, defaultdict
from typing import Any

import pyarrow.compute as pc

from hetfeat.dataset.store import RecordStore


def counts(store: RecordStore) -> list[dict[str, Any]]:
    """Records, tasks and failures by device and operator.

    Memory is a piece of the store, and the hash of each task.

    Returns:
        Rows of `device`, `operator`, `records`, `tasks`, `failed`, sorted.
    """
    records: Counter[tuple[str, str]] = Counter()
    failed: Counter[tuple[str, str]] = Counter()
    tasks: dict[tuple[str, str], set[str]] = defaultdict(set)
    for table in store.scan(["device", "operator", "task", "error"]):
        grouped = table.group_by(["device", "operator", "task"])
        for row in grouped.aggregate([([], "count_all"), ("error", "count")]).to_pylist():
            key = row["device"], row["operator"]
            records[key] += row["count_all"]
            failed[key] += row["error_count"]
            tasks[key].add(row["task"])
    return [
        {
            "device": device,
            "operator": operator,
            "records": number,
            "tasks": len(tasks[device, operator]),
            "failed": failed[device, operator],
        }
        for (device, operator), number in sorted(records.items())
    ]


def measured_between(store: RecordStore) -> tuple[float, float] | None:
    """Unix times of the first and the last measurement; None where no record has one.

    Imported records may have none.
    """
    dated = store.scan(["unix_s"], where=pc.field("unix_s") > 0)
    spans = [pc.min_max(table["unix_s"]).as_py() for table in dated if len(table)]
    if not spans:
        return None
    return min(span["min"] for span in spans), max(span["max"] for span in spans)
