"""Pieces of a store: as much as is read at once, so that every pass is flat in memory."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import IO, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from hetfeat.dataset.files import RESTORE, parsed
from hetfeat.dataset.schema import SCHEMA, amiss, to_table
from hetfeat.errors import DataError

JOURNAL_BYTES = 2**22
"""Of a journal read at once."""


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

    def read(
        self, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pa.Table:
        """See `Piece.read`."""
        try:
            with self.path.open("rb") as file:
                if _digest_of_first_line(file) != self.first:
                    raise FileNotFoundError
                file.seek(self.start)
                text = file.read(self.end - self.start).decode(errors="replace")
        except FileNotFoundError as error:
            raise _moved(self.path) from error
        try:
            table = to_table(parsed(StringIO(text), self.path))
        except (pa.ArrowException, AttributeError, TypeError, ValueError, OverflowError) as error:
            raise _no_record(self.path, type(error).__name__) from error
        table = _checked(table, self.path)
        if where is not None:
            table = table.filter(where)
        return table.select(_listed(columns))


def row_groups(shard: Path, where: pc.Expression | None = None) -> Iterator[RowGroup]:
    """The row groups of a shard, those without a record for `where` left out by statistics.

    Raises:
        DataError: The shard is damaged.
    """
    try:
        found = _fragment(shard).split_by_row_group(filter=where, schema=SCHEMA)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(shard, error) from error
    return (RowGroup(shard, fragment.row_groups[0].id) for fragment in found)


def journal_parts(path: Path) -> list[JournalPart]:
    """The whole of a journal.

    Raises:
        DataError: It has just gone.
    """
    parts: list[JournalPart] = []
    try:
        with path.open("rb") as file:
            first, size, start = _digest_of_first_line(file), file.seek(0, os.SEEK_END), 0
            while start < size:
                file.seek(min(start + JOURNAL_BYTES, size))
                file.readline()
                parts.append(JournalPart(path, start, file.tell(), first))
                start = file.tell()
    except FileNotFoundError as error:
        raise _moved(path) from error
    return parts


def _checked(table: pa.Table, path: Path) -> pa.Table:
    """The table, once its values are those of records."""
    if what := amiss(table):
        raise _no_record(path, what)
    return table


def _no_record(path: Path, what: str) -> DataError:
    return DataError(f"'{path}' with a line or row that is no record ({what})", "records", RESTORE)


def _moved(journal: Path) -> DataError:
    return DataError(
        f"'{journal.parent}', whose journal became shards while it was read",
        "a store that nobody writes to meanwhile",
        "repeat the command",
    )


def _digest_of_first_line(file: IO[bytes]) -> str:
    return hashlib.sha256(file.readline()).hexdigest()


def _fragment(path: Path) -> ds.ParquetFileFragment:
    return ds.ParquetFileFormat().make_fragment(str(path), LocalFileSystem())


def _listed(columns: Sequence[str] | None) -> list[str]:
    return SCHEMA.names if columns is None else list(columns)


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"shard '{path}', which cannot be read ({type(error).__name__})",
        "an intact Parquet file",
        "restore it; `hetfeat records verify DIR` lists every damaged shard",
    )
