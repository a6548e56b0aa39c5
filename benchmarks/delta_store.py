"""What a local record store would cost if it were a Delta Lake table.

    python benchmarks/delta_store.py --records 100000 [--folder DIR]

The records are those of `store_scaling.py`, without per-store features. Measured are appending one
record so that it is on the disk, committing a batch, opening, and reading everything; each of the
store of today, and of a table to which batches of 2,048 records were committed. Shown are medians
and 90th centiles of wall time, and what lies on the disk.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, WriterProperties, write_deltalake
from store_scaling import make_store

from hetfeat.dataset.schema import from_table
from hetfeat.dataset.store import RecordStore

BATCH = 2048
WRITTEN = WriterProperties(compression="ZSTD", compression_level=9, max_row_group_size=8192)


def timed(work: Callable[[], object], repeats: int) -> str:
    """Median and 90th centile of repeated work, in milliseconds."""
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        taken.append((time.perf_counter() - started) * 1e3)
    return f"{statistics.median(taken):.1f} ms, {np.percentile(taken, 90):.1f} ms at the 90th"


def size_of(folder: Path) -> str:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return f"{len(sizes)} files, {sum(sizes) / 1e6:.1f} MB"


def commit(table: Path, rows: pa.Table) -> None:
    write_deltalake(
        str(table), rows, mode="append", partition_by="device", writer_properties=WRITTEN
    )


def measure(folder: Path, records: int) -> None:
    make_store(folder / "whole", records, stores=False)
    every = RecordStore.open(folder / "whole").read()
    batches = [every.slice(start, BATCH) for start in range(0, records, BATCH)]
    one = list(from_table(every.slice(0, 1)))

    store, table = RecordStore.create(folder / "store"), folder / "table"
    print("append a record, empty: store", timed(lambda: store.append(one), 300))
    print("append a record, empty: table", timed(lambda: commit(table, every.slice(0, 1)), 20))
    started = time.perf_counter()
    for batch in batches:
        store.append(from_table(batch))
        store.compact()
    print(f"all batches: store {time.perf_counter() - started:.1f} s")
    started = time.perf_counter()
    for batch in batches:
        commit(table, batch)
    print(f"all batches: table {time.perf_counter() - started:.1f} s")
    print("append a record, full: store", timed(lambda: store.append(one), 300))
    print("append a record, full: table", timed(lambda: commit(table, every.slice(0, 1)), 20))
    print("open: store", timed(lambda: RecordStore.open(store.path), 20))
    print("open: table", timed(lambda: DeltaTable(str(table)), 20))
    read = lambda: sum(rows.num_rows for rows in store.scan())  # noqa: E731
    print("read: store", timed(read, 3), size_of(store.path))
    read = lambda: DeltaTable(str(table)).to_pyarrow_table().num_rows  # noqa: E731
    print("read: table", timed(read, 3), size_of(table))
    DeltaTable(str(table)).optimize.compact(writer_properties=WRITTEN)
    files = len(DeltaTable(str(table)).file_uris())
    print(f"read: table, compacted to {files} files", timed(read, 3), size_of(table))
    whole = RecordStore.open(folder / "whole")
    read = lambda: sum(rows.num_rows for rows in whole.scan())  # noqa: E731
    print("read: store, written at once", timed(read, 3), size_of(whole.path))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where the disk is that counts")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as work:
        measure(Path(work), given.records)


if __name__ == "__main__":
    main()
