"""Upkeep of a table: whether its files are as they were written, and fewer of them."""

from hetfeat.dataset.tables.columns import SHARED_SCHEMA
from hetfeat.dataset.tables.engine import committing, translated
from hetfeat.dataset.tables.table import RecordTable
from hetfeat.errors import DataError, HetfeatError
from hetfeat.parsing import printable

LEAST_HOURS = 24
"""Shortest time for which `vacuum` keeps files."""


def damaged(table: RecordTable) -> dict[str, str]:
    """Files that are missing, hold no records or not as many as were written, and why."""
    found, written = dict[str, str](), table.declared()
    for file in table.files():
        try:
            rows = sum(t.num_rows for t in table.read_file(file, SHARED_SCHEMA.names))
        except HetfeatError as error:
            found[printable(file.path, None)] = error.given
            continue
        if (declared := written.get(file.path)) != rows:
            found[printable(file.path, None)] = f"{rows} records, not {declared}"
    return found


def compact(table: RecordTable) -> None:
    """Writes small files anew as large ones, which older versions do without."""
    table.check_lock()
    with translated(f"compact the table '{table.uri}'"), committing(table.uri):
        table.handle.optimize.compact(writer_properties=table.config.written())


def vacuum(table: RecordTable, keep_hours: int) -> list[str]:
    """Removes files that no version of the last hours has.

    Returns:
        Paths of the files.

    Raises:
        DataError: A writer may be at work for longer.
    """
    if keep_hours < LEAST_HOURS:
        raise DataError(
            f"{keep_hours} hours",
            f"{LEAST_HOURS} at least, for a writer may be at work as long",
            "keep more",
        )
    table.check_lock()
    with translated(f"vacuum the table '{table.uri}'"), committing(table.uri):
        return list(
            table.handle.vacuum(keep_hours, dry_run=False, enforce_retention_duration=False)
        )
