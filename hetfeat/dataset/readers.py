"""Pieces of a store: as much as is read at once, so that every pass is flat in memory."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from hetfeat.dataset.bounds import check_row_group
from hetfeat.dataset.files import bounded, parsed, repair_hint, too_long
from hetfeat.dataset.schema import SCHEMA, amiss, to_table
from hetfeat.dataset.store_config import StoreConfig
from hetfeat.errors import DataError


class Piece(Protocol):
    """Some records of a store. It can be sent to another process that sees the same folder."""

    @property
    def path(self) -> Path:
        """The file they are in."""

    def read(
        self, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pa.Table:
        """The records that fulfil `where`, as a table of `SCHEMA`'s columns or of those named.

        Raises:
            DataError: The file is damaged.
        """

    def has_all(self, column: str) -> bool:
        """Whether each record is known to have values in a column, without reading it.

        Raises:
            DataError: The file is damaged.
        """


@dataclass(frozen=True)
class RowGroup:
    """A row group of a shard."""

    path: Path
    number: int

    def read(
        self, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pa.Table:
        """See `Piece.read`."""
        try:
            fragment = _fragment(self.path).subset(row_group_ids=[self.number])
            table = fragment.to_table(SCHEMA, columns=_listed(columns), filter=where)
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(self.path, error) from error
        return _checked(table, self.path)

    def has_all(self, column: str) -> bool:
        """See `Piece.has_all`: as the file's statistics have it."""
        try:
            group = _fragment(self.path).metadata.row_group(self.number)
            leaves = [group.column(i) for i in range(group.num_columns)]
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(self.path, error) from error
        own = [leaf for leaf in leaves if leaf.path_in_schema.split(".")[0] == column]
        return bool(own) and all(map(_without_null, own))


@dataclass(frozen=True)
class JournalPart:
    """Lines of a journal, from one byte position to another.

    `first` is a digest of the first line: once its lines are in shards, a new journal may have its
    name.
    """

    path: Path
    start: int
    end: int
    first: str
    max_line_bytes: int

    def read(
        self, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pa.Table:
        """See `Piece.read`."""
        try:
            with self.path.open("rb") as file:
                if _digest_of_first_line(file, self.max_line_bytes) != self.first:
                    raise FileNotFoundError
                file.seek(self.start)
                data = BytesIO(file.read(self.end - self.start))
        except FileNotFoundError as error:
            raise _moved(self.path) from error
        action = repair_hint(self.path.parent)
        table = records_of(bounded(data, self.path, None, action, self.max_line_bytes), self.path)
        if where is not None:
            table = table.filter(where)
        return table.select(_listed(columns))

    def has_all(self, column: str) -> bool:
        """See `Piece.has_all`: a journal says nothing of all its lines."""
        return False


def row_groups(
    shard: Path,
    where: pc.Expression | None = None,
    options: StoreConfig = StoreConfig(),
) -> list[RowGroup]:
    """The row groups of a shard, those without a record for `where` left out by statistics.

    Args:
        shard: Path of the shard.
        where: Condition on the wanted records; None, the default, for all.
        options: Most rows and memory of a row group; those of `StoreConfig` by default.

    Raises:
        DataError: The shard is damaged, or a row group is too large to be read.
    """
    try:
        whole = _fragment(shard)
        found = whole.split_by_row_group(filter=where, schema=SCHEMA)
        numbers = [fragment.row_groups[0].id for fragment in found]
        for number in numbers:
            check_row_group(shard, whole.metadata, number, options)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(shard, error) from error
    return [RowGroup(shard, number) for number in numbers]


def journal_parts(path: Path, options: StoreConfig = StoreConfig()) -> list[JournalPart]:
    """The whole of a journal.

    Args:
        path: Path of the journal.
        options: Longest line, and bytes read at once; those of `StoreConfig` by default.

    Raises:
        DataError: It has just gone, or a line is too long.
    """
    parts: list[JournalPart] = []
    max_line_bytes = options.max_line_bytes
    try:
        with path.open("rb") as file:
            first, start = _digest_of_first_line(file, max_line_bytes), 0
            size = file.seek(0, os.SEEK_END)
            while start < size:
                file.seek(min(start + options.journal_bytes, size))
                if len(file.readline(max_line_bytes + 1)) > max_line_bytes:
                    raise too_long(path, max_line_bytes, repair_hint(path.parent))
                parts.append(JournalPart(path, start, file.tell(), first, max_line_bytes))
                start = file.tell()
    except FileNotFoundError as error:
        raise _moved(path) from error
    return parts


def records_of(lines: Iterable[bytes], journal: Path) -> pa.Table:
    """Lines of a journal as a table of `SCHEMA`.

    Raises:
        DataError: A line is no record.
    """
    try:
        table = to_table(parsed(lines, journal, repair_hint(journal.parent)))
    except (pa.ArrowException, AttributeError, TypeError, ValueError, OverflowError) as error:
        raise _no_record(journal, type(error).__name__) from error
    return _checked(table, journal)


def _checked(table: pa.Table, path: Path) -> pa.Table:
    """The table, once its values are those of records."""
    if what := amiss(table):
        raise _no_record(path, what)
    return table


def _no_record(path: Path, what: str) -> DataError:
    given = f"'{path}' with a line or row that is no record ({what})"
    return DataError(given, "records", repair_hint(_store_of(path)))


def _store_of(path: Path) -> Path:
    """The store of a shard or a journal."""
    return path.parents[2] if path.suffix == ".parquet" else path.parent


def _moved(journal: Path) -> DataError:
    return DataError(
        f"'{journal.parent}', whose journal became shards while it was read",
        "a store that nobody writes to meanwhile",
        "repeat the command",
    )


def _digest_of_first_line(file: IO[bytes], max_line_bytes: int) -> str:
    return hashlib.sha256(file.readline(max_line_bytes)).hexdigest()


def _fragment(path: Path) -> ds.ParquetFileFragment:
    return ds.ParquetFileFormat().make_fragment(str(path), LocalFileSystem())


def _without_null(leaf: Any) -> bool:
    """Whether statistics say that no value of a column is missing, and no list is empty."""
    told = leaf.statistics
    return told is not None and told.has_null_count and told.null_count == 0


def _listed(columns: Sequence[str] | None) -> list[str]:
    return SCHEMA.names if columns is None else list(columns)


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"shard '{path}', which cannot be read ({type(error).__name__})",
        "an intact Parquet file",
        f"restore it, or {repair_hint(_store_of(path))}",
    )
