"""How much memory a row group of a shard takes, known before it is read.

A file of kilobytes may become gigabytes: texts by dictionary are stored once and read as often as
they are named, and what is packed says little of what is unpacked.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from hetfeat.dataset.files import repair_hint
from hetfeat.dataset.schema import SCHEMA
from hetfeat.dataset.store_config import StoreConfig
from hetfeat.errors import DataError

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
"""Bytes of a value; texts and bytes are not here."""
_OFFSET_BYTES = 4


def check_row_group(
    shard: Path, metadata: pq.FileMetaData, number: int, options: StoreConfig
) -> None:
    """Refuses a row group that would take too much memory.

    Args:
        shard: Path of the shard.
        metadata: Metadata of the shard; what it declares is believed.
        number: Position of the row group in the shard.
        options: Most rows, and most memory for all columns of a record together.

    Raises:
        DataError: It has more rows, or takes more.
        OSError: The texts could not be read.
        pa.ArrowException: They are damaged.
    """
    group = metadata.row_group(number)
    max_rows, max_bytes = options.max_group_rows, options.max_group_bytes
    if group.num_rows > max_rows:
        raise _too_large(shard, f"{group.num_rows} rows", f"{max_rows} rows")
    least = most = 0
    by_dictionary = []
    for column in map(group.column, range(group.num_columns)):
        name, count, stored = (
            column.path_in_schema,
            column.num_values,
            column.total_uncompressed_size,
        )
        width = _WIDTHS.get(column.physical_type)
        if name.partition(".")[0] not in SCHEMA.names:
            continue
        if width or not column.has_dictionary_page:
            least += count * width if width else count * _OFFSET_BYTES + stored
        elif name in SCHEMA.names and column.physical_type == "BYTE_ARRAY":
            by_dictionary.append(name)
            least += count * _OFFSET_BYTES + stored
            most += count * stored  # as if each were the whole dictionary
        else:
            least += count * stored
    most += least
    if least <= max_bytes < most:
        most = least + sum(_text_bytes(shard, number, by_dictionary))
    if most > max_bytes:
        raise _too_large(shard, f"{most} bytes once it is unpacked", f"{max_bytes} bytes")


def _text_bytes(shard: Path, number: int, columns: list[str]) -> Iterator[int]:
    """Bytes of the texts of each column, of which only the different ones are read."""
    for name in columns:
        with pq.ParquetFile(shard, read_dictionary=[name]) as file:
            for chunk in file.read_row_group(number, [name]).column(0).chunks:
                yield pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0


def _too_large(shard: Path, given: str, allowed: str) -> DataError:
    return DataError(
        f"shard '{shard}' with a row group of {given}",
        f"{allowed} at most",
        repair_hint(shard.parents[2]),
    )
