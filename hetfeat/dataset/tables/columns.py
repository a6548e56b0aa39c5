"""Columns of a table of records: how they are written, and checked when they are read."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from hetfeat.dataset.schema import ABSENT, SCHEMA, amiss
from hetfeat.dataset.tables.uri import TableUri
from hetfeat.errors import DataError
from hetfeat.parsing import printable

if TYPE_CHECKING:
    from deltalake import DeltaTable, WriterProperties

SHARED_SCHEMA = SCHEMA.append(pa.field("shard", pa.string()))
"""Columns of the table; `shard` names the shard of a store that a record was first in."""
FACTS_SCHEMA = pa.schema([(name, pa.string()) for name in ("kind", "name", "content")])


@dataclass(frozen=True)
class TableConfig:
    """How tables are written.

    Attributes:
        readers: Threads that ask which shards are there; 8 by default.
        group_rows: Most rows of a row group, the unit of reading; 8,192 by default.
        compression_level: Level of zstd; 3 by default.
        attempts: Number of times that a commit is tried beside others'; 100 by default.
        wait_s: Longest wait between two of these, in seconds, chosen at random; 1 by default.
    """

    readers: int = 8
    group_rows: int = 2**13
    compression_level: int = 3
    attempts: int = 100
    wait_s: float = 1.0

    def written(self) -> "WriterProperties":
        """The same in the library's words."""
        from deltalake import WriterProperties

        return WriterProperties(
            compression="ZSTD",
            compression_level=self.compression_level,
            max_row_group_size=self.group_rows,
        )


def has_columns(handle: "DeltaTable", schema: pa.Schema) -> bool:
    """Whether a table has these columns and no others."""
    return set(schema.names) == {field.name for field in handle.schema().fields}


def check_columns(uri: TableUri, handle: "DeltaTable") -> None:
    """Refuses a table of something else; columns of a newer hetfeat are passed over."""
    names = {field.name for field in handle.schema().fields}
    if lacking := sorted(set(SHARED_SCHEMA.names) - names - ABSENT):
        raise DataError(
            f"table '{uri}' without {', '.join(lacking)}", "a table of records", "name another"
        )


def with_shard(table: pa.Table, name: str) -> pa.Table:
    """Records of one shard, with its name."""
    return table.append_column(
        SHARED_SCHEMA.field("shard"), pa.array([name] * table.num_rows, pa.string())
    )


def checked(table: pa.Table, schema: pa.Schema, uri: TableUri) -> pa.Table:
    """A table with the columns of a schema, those that it lacks empty.

    Raises:
        DataError: A column is of another type, or a value is none of a record.
    """
    arrays = []
    for field in schema:
        try:
            column = table[field.name] if field.name in table.column_names else None
            empty = pa.nulls(table.num_rows, field.type)
            arrays.append(empty if column is None else column.cast(field.type))
        except (pa.ArrowException, KeyError) as error:
            raise _no_record(uri, field.name) from error
    cast = pa.table(arrays, schema=schema)
    what = amiss(cast)
    if "shard" in schema.names and not _are_shards(cast["shard"]):
        what = "shard"
    if what:
        raise _no_record(uri, what)
    return cast


def _no_record(uri: TableUri, what: str) -> DataError:
    return DataError(
        f"table '{uri}' with a row that is no record ({printable(what)})",
        "records",
        "read an older version with --as-of, or have it restored",
    )


def _are_shards(names: pa.ChunkedArray) -> bool:
    matching = pc.match_substring_regex(names.unique(), r"^[0-9a-f]{32}$")
    return bool(pc.all(matching, min_count=0).as_py())
