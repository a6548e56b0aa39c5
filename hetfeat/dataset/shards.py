"""Writing shards: one open per device and operator, memory bounded whatever is written."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hetfeat.dataset.files import sha256
from hetfeat.dataset.schema import SCHEMA
from hetfeat.dataset.store_config import StoreConfig
from hetfeat.durable import sync

_REPEATING = ["device", "task", "operator", "shapes", "dtype", "error", "versions"]
"""Columns with few values, which a dictionary shortens; traces and keys are all different."""

Line = dict[str, Any]


class ShardWriter:
    """Divides records by device and operator and writes them, a row group at a time.

    Args:
        root: Folder of the store.
        finished: Function called with the line of `shards.jsonl` of each shard once it is written.
        options: Sizes and level of compression; those of `StoreConfig` by default.
    """

    def __init__(
        self,
        root: Path,
        finished: Callable[[Line], None],
        options: StoreConfig = StoreConfig(),
    ) -> None:
        self._root, self._finished, self._options = root, finished, options
        self._waiting: dict[str, list[pa.Table]] = {}
        self._bytes: dict[str, int] = {}
        self._open: dict[str, tuple[pq.ParquetWriter, int]] = {}

    def add(self, table: pa.Table) -> None:
        """Takes records, a table of `SCHEMA`."""
        keys = table.group_by(["device", "operator"]).aggregate([]).to_pylist()
        for key in sorted(keys, key=lambda key: (key["device"], key["operator"])):
            same = [pc.field(name) == value for name, value in key.items()]
            part = table.filter(same[0] & same[1]) if len(keys) > 1 else table
            self._wait(folder_of(**key), part)
        while sum(self._bytes.values()) > self._options.buffer_bytes:
            self._flush(max(self._bytes, key=self._bytes.__getitem__))

    def close(self) -> None:
        """Writes what waits and finishes every shard."""
        for folder in list(self._waiting):
            self._flush(folder)
        for folder in list(self._open):
            self._close(folder)

    def _wait(self, folder: str, part: pa.Table) -> None:
        self._waiting.setdefault(folder, []).append(part)
        self._bytes[folder] = self._bytes.get(folder, 0) + part.nbytes

    def _flush(self, folder: str) -> None:
        table = pa.concat_tables(self._waiting.pop(folder))
        del self._bytes[folder]
        if folder not in self._open:
            (self._root / folder).mkdir(parents=True, exist_ok=True)
            writer = pq.ParquetWriter(
                self._root / folder / ".draft",
                SCHEMA,
                use_dictionary=_REPEATING,
                compression="zstd",
                compression_level=self._options.compression_level,
            )
            self._open[folder] = writer, 0
        writer, rows = self._open[folder]
        writer.write_table(table)
        self._open[folder] = writer, rows + table.num_rows
        if rows + table.num_rows >= self._options.shard_rows:
            self._close(folder)

    def _close(self, folder: str) -> None:
        writer, rows = self._open.pop(folder)
        writer.close()
        place = self._root / folder
        digest = sha256(place / ".draft")
        path = f"{folder}/{digest[:32]}.parquet"
        sync(place / ".draft")
        os.replace(place / ".draft", self._root / path)
        for changed in (place, place.parent, self._root):
            sync(changed)
        self._finished({"path": path, "sha256": digest, "rows": rows})


def folder_of(device: str, operator: str = "") -> str:
    """Folder of a partition, or its beginning; names from foreign files cannot leave the store."""
    return f"device={quote(device, safe='')}/operator={quote(operator, safe='')}"
