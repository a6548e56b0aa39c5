"""A store whose shards go to a table: what is written here is first safe here, then shared."""

import hashlib
import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hetfeat.dataset.store import RecordStore
from hetfeat.dataset.store_config import StoreConfig
from hetfeat.dataset.tables.local_copy import table_folder
from hetfeat.dataset.tables.table import RecordTable
from hetfeat.dataset.tables.transport import pull, push
from hetfeat.dataset.tables.uri import Place
from hetfeat.errors import DataError, WorkFailed

log = logging.getLogger(__name__)


class SharedStore(RecordStore):
    """A local store from which `compact` commits to a table.

    While the table cannot be reached, records wait here; `share` says so in the end.
    """

    table: RecordTable

    def compact(self) -> None:
        """Moves the journal into shards, and commits these to the table if it can be reached."""
        super().compact()
        try:
            push(self, self.table, compare=False)
        except WorkFailed as error:
            log.warning("%s", error)


def share(store: RecordStore) -> None:
    """Commits what the table of a shared store does not have yet; others are as they should be.

    Raises:
        WorkFailed: The table cannot be reached.
    """
    if not isinstance(store, SharedStore):
        return
    try:
        push(store, store.table, compare=False)
    except WorkFailed as error:
        raise WorkFailed(
            error.given,
            f"{error.expected}; the records are in '{store.path}'",
            "repeat the command, or `hetfeat records push` this folder",
        ) from error


def store_at(
    place: Place, devices: Sequence[str], options: StoreConfig = StoreConfig()
) -> RecordStore:
    """The store to which records of some devices are written, made if there is none.

    For a table it is a folder of this machine that has what the table knows of these devices.

    Args:
        place: Folder of a store, or URI of a table.
        devices: Names of the devices.
        options: Sizes of what is written and bounds of what is read; those of `StoreConfig` by
            default.

    Raises:
        DataError: The folder or the table holds something else.
        WorkFailed: The table cannot be reached.
    """
    if isinstance(place, Path):
        return RecordStore.create(place, options)
    table = RecordTable.create(place)
    key = hashlib.sha256("\n".join(sorted(devices)).encode()).hexdigest()[:16]
    store = SharedStore.create(table_folder(place) / "writing" / key, options)
    assert isinstance(store, SharedStore)
    store.table = table
    pull(table, store, devices)
    return store


@contextmanager
def new_folder(place: Place) -> Iterator[Path]:
    """The folder into which a new store is written; what is in it in the end is the table's.

    Args:
        place: Folder of the store itself, or URI of a table.

    Raises:
        DataError: The table has records.
        WorkFailed: The table cannot be reached.
    """
    if isinstance(place, Path):
        yield place
        return
    table = RecordTable.create(place)
    if table.size[1]:
        raise DataError(f"'{place}', which has records", "a new table", "choose another --out")
    with tempfile.TemporaryDirectory(prefix="hetfeat-") as work:
        yield Path(work) / "records"
        push(RecordStore.open(Path(work) / "records"), table, compare=False)
