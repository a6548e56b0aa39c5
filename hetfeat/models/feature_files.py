"""Features as Parquet files, for other tools: a row a record, with the columns that trees read."""

import os
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hetfeat.cluster import Over
from hetfeat.dataset.store import RecordStore
from hetfeat.errors import DataError
from hetfeat.features.assemble import map_examples, no_records
from hetfeat.features.batch import Examples
from hetfeat.models.aggregate import flat_features, table_names

KEYS = ("device", "task", "operator", "program")


def write_features(store: RecordStore, out: Path, over: Over = map) -> dict[str, int]:
    """Writes a file a piece of the store, each by who computes it.

    Args:
        store: Store whose records are read.
        out: New folder; on a cluster, one that all workers see.
        over: Function that applies another to each piece; `map` by default.

    Returns:
        The number of records, of files, and of records left out.

    Raises:
        DataError: `out` holds something, the store is damaged, or has nothing to learn from.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"'{out}', which holds something", "a new folder", "choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    parts = list(map_examples(store, partial(_write, out.resolve()), over))
    written = [part.result for part in parts if part.result]
    if not written:
        raise no_records(store)
    return {
        "records": sum(written),
        "files": len(written),
        "without_features": sum(part.without_features for part in parts),
        "duplicates": sum(part.duplicates for part in parts),
    }


def _write(out: Path, examples: Examples) -> int:
    """One file, whole or not at all, named by its first record and its size."""
    if len(examples):
        table = flat_features(examples.batch.loaded())
        keys = {name: pa.array(getattr(examples, name).tolist(), pa.string()) for name in KEYS}
        columns = dict(zip(table_names("flat"), map(pa.array, table.T), strict=True))
        rows = pa.table({**keys, "latency_s": pa.array(examples.latency_s), **columns})
        name = f"{examples.device[0]}-{examples.program[0][:16]}-{len(examples)}"
        draft = out / f".{name}.{os.getpid()}"
        pq.write_table(rows, draft, compression="zstd")
        draft.replace(out / f"{name}.parquet")
    return len(examples)
