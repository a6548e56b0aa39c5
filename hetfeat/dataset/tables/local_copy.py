"""A version of a table as a local store, which every command reads as it reads any other."""

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

from hetfeat.dataset.store import HEAD, RecordStore
from hetfeat.dataset.store_config import StoreConfig
from hetfeat.dataset.tables.table import RecordTable
from hetfeat.dataset.tables.transport import pull
from hetfeat.dataset.tables.uri import AsOf, Place, TableUri
from hetfeat.devices.probe import home
from hetfeat.durable import sync_tree, write_file
from hetfeat.errors import RequestError
from hetfeat.records import SCHEMA_VERSION


def local_records(place: Place, as_of: AsOf | None = None, keep_s: float = 86_400.0) -> Path:
    """The folder of a record store: one that is given, or a copy of a table's version.

    A copy is made once. Its digest is that of the table's version, on every machine.

    Args:
        place: Folder of a store, or URI of a table.
        as_of: Version of the table, or moment of which it is; None, the default, for the newest.
        keep_s: Time for which copies of other versions stay after their last use, in seconds; a
            day by default.

    Raises:
        RequestError: A local store is asked for an older version.
        DataError: There is no such table, or no such version of it.
        WorkFailed: The storage does not answer.
    """
    if isinstance(place, Path):
        if as_of is not None:
            raise RequestError(
                f"--as-of with the local store '{place}'", "a table, which has versions", "omit it"
            )
        return place
    table = RecordTable.open(place, as_of)
    folder = table_folder(place) / "versions"
    target = folder / _digest(table.identity)
    if not (target / HEAD).is_file():
        _copy(table, target)
    os.utime(target)
    for other in folder.iterdir():
        if other.stat().st_mtime < time.time() - keep_s:
            shutil.rmtree(other, ignore_errors=True)
    return target


def table_folder(uri: TableUri) -> Path:
    """The folder of what this machine keeps of a table."""
    return home() / "tables" / _digest(uri)


def _copy(table: RecordTable, target: Path) -> None:
    """Makes the copy, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=target.parent) as work:
        store = RecordStore.create(Path(work) / "records", StoreConfig(compression_level=3))
        pull(table, store)
        head = {"schema_version": SCHEMA_VERSION, "origin": table.identity}
        write_file(store.path / HEAD, json.dumps(head).encode())
        sync_tree(store.path)
        try:
            os.replace(store.path, target)
        except OSError as error:  # another process was first
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
