"""A table of records: what a store holds, in Delta Lake, where many processes append at once.

TABLE/device=D/*.parquet   records, with the shard that each came from; the engine writes them
TABLE/_delta_log/          versions, and an application transaction for each shard committed
TABLE/_facts/              a table of devices, networks, tasks' modules and evaluation tasks

A commit that brought new facts notes their version, so that an older version has its own facts.
"""

import functools
import os
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from hetfeat.dataset.tables.columns import (
    FACTS_SCHEMA,
    SHARED_SCHEMA,
    TableConfig,
    check_columns,
    checked,
    has_columns,
    with_shard,
)
from hetfeat.dataset.tables.engine import (
    LOCK,
    check_conditional_writes,
    committing,
    file_system,
    storage_options,
    translated,
)
from hetfeat.dataset.tables.uri import AsOf, TableUri
from hetfeat.errors import DataError, WorkFailed
from hetfeat.parsing import printable

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

FACTS = "facts"
_LOCKED = "hetfeat.locked"
"""Property of a table to which only those with `LOCK` may commit."""


Rest = Callable[[], tuple[pa.Table, list[str]]]
"""What is to be appended yet, and under which transactions."""


class DevicesTaken(Exception):
    """Another process has added a device meanwhile."""


class RecordTable:
    """A table of records at a URI; `open` reads one, `create` makes it if there is none."""

    def __init__(self, uri: TableUri, version: AsOf | None, config: TableConfig) -> None:
        self.uri, self.config = uri, config
        with translated(f"read the table '{uri}'"):
            self._handles = {uri: self._open(uri, version)}
        check_columns(uri, self.handle)
        self._known: tuple[pa.Table, int] | None = None
        self._seen: dict[str, tuple[int, int | None]] = {}

    @property
    def handle(self) -> "DeltaTable":
        """What the engine knows the table by."""
        return self._handles[self.uri]

    def _newest(self, at: TableUri) -> "DeltaTable":
        """The table, or its facts, with what others have committed meanwhile."""
        if at in self._handles:
            self._handles[at].update_incremental()
        else:
            self._handles[at] = self._open(at, None)
        return self._handles[at]

    @classmethod
    def open(
        cls, uri: TableUri, as_of: AsOf | None = None, config: TableConfig = TableConfig()
    ) -> "RecordTable":
        """An existing table.

        Args:
            uri: URI of the table.
            as_of: Version to read, or moment of which it is; None, the default, for the newest.
            config: Settings of what is written; those of `TableConfig` by default.

        Raises:
            DataError: There is no table, no such version, or one of something else.
            WorkFailed: The storage does not answer.
        """
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return cls(uri, as_of, config)
        except WorkFailed as error:
            match error.__cause__:
                case TableNotFoundError():
                    action = "make one with `hetfeat records push DIR URI`"
                    raise DataError(f"'{uri}'", "a table of records", action) from error
                case DeltaError() if as_of is not None:
                    given, action = f"'{uri}' as of {as_of}", "see `hetfeat records stats`"
                    raise DataError(given, "a version of the table", action) from error
            raise

    @classmethod
    def create(cls, uri: TableUri, config: TableConfig = TableConfig()) -> "RecordTable":
        """The table at a URI, made if there is none.

        Raises:
            DataError: The storage admits two writers at once, or there is a table of something
                else.
            WorkFailed: The storage does not answer.
        """
        from deltalake import DeltaTable

        exists = functools.partial(DeltaTable.is_deltatable, uri, storage_options(uri))
        with translated(f"make the table '{uri}'"):
            there = exists()
        if not there:
            check_conditional_writes(uri)
            cls._make(uri, _facts(uri), FACTS_SCHEMA, [])
            cls._make(uri, uri, SHARED_SCHEMA, ["device"])
        return cls(uri, None, config)

    @staticmethod
    def _make(uri: TableUri, at: str, schema: pa.Schema, partition_by: list[str]) -> None:
        """Makes a table, or finds that another process has."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        options = storage_options(uri)
        properties = {"delta.checkpointInterval": "20"}
        if LOCK in os.environ:
            properties[_LOCKED] = "true"
        with translated(f"make the table '{uri}'"), committing(uri):
            try:
                DeltaTable.create(
                    at,
                    schema,
                    mode="ignore",
                    partition_by=partition_by,
                    configuration=properties,
                    storage_options=options,
                    raise_if_key_not_exists=False,
                )
            except DeltaError:
                if not DeltaTable.is_deltatable(at, options):
                    raise

    @property
    def version(self) -> int:
        """Number of the version that is read."""
        return int(self.handle.version())

    @property
    def identity(self) -> str:
        """What no other version of any table has: the table's own id, and the version."""
        return f"{printable(str(self.handle.metadata().id))}@{self.version}"

    def scan(
        self,
        columns: Sequence[str] = SHARED_SCHEMA.names,
        devices: Sequence[str] | None = None,
        without: Collection[str] = (),
    ) -> Iterator[pa.Table]:
        """Records, a row group at a time, as tables of some of `SHARED_SCHEMA`'s columns.

        Args:
            columns: Names of the wanted columns; all by default.
            devices: Names of the wanted devices; None, the default, for all.
            without: Shards whose records are not wanted; none by default.

        Raises:
            DataError: Something in the table is no record.
            WorkFailed: A file cannot be read.
        """
        for file in self.files(devices):
            if without:
                held = self.read_file(file, ["shard"])
                if all(set(t["shard"].unique().to_pylist()) <= set(without) for t in held):
                    continue
            unwanted = pa.array(without, pa.string())
            for table in self.read_file(file, list(dict.fromkeys([*columns, "shard"]))):
                wanted = pc.invert(pc.is_in(table["shard"], unwanted))
                yield (table.filter(wanted) if without else table).select(list(columns))

    def files(self, devices: Sequence[str] | None = None) -> Iterator[ds.Fragment]:
        """Files of some devices, or of all."""
        where = None if devices is None else pc.field("device").isin(list(devices))
        with translated(f"read the table '{self.uri}'"):
            yield from self._dataset().get_fragments(filter=where)

    def _dataset(self) -> ds.Dataset:
        return self.handle.to_pyarrow_dataset(filesystem=file_system(self.uri))

    def read_file(self, file: ds.Fragment, columns: list[str]) -> Iterator[pa.Table]:
        """Row groups of a file, checked."""
        schema = self._dataset().schema
        present = [name for name in columns if name in schema.names]
        wanted = pa.schema([SHARED_SCHEMA.field(name) for name in columns])
        with translated(f"read '{printable(file.path)}' of the table '{self.uri}'"):
            for group in file.split_by_row_group(schema=schema):
                table = group.to_table(schema=schema, columns=present)
                yield checked(table, wanted, self.uri)

    def declared(self) -> dict[str, int]:
        """Records of each file, as the log has them."""
        rows = pa.table(self.handle.get_add_actions(flatten=True)).to_pylist()
        return {row["path"]: row["num_records"] for row in rows}

    @property
    def size(self) -> tuple[int, int]:
        """Number of files, and of records as the log has them."""
        declared = self.declared()
        return len(declared), sum(declared.values())

    def holds(self, shards: Sequence[str]) -> set[str]:
        """Those of some shards that were committed; the engine reads the log anew for each."""
        with ThreadPoolExecutor(self.config.readers) as pool:
            found = pool.map(self._committed, shards)
            return {s for s, version in zip(shards, found, strict=True) if version is not None}

    def _committed(self, name: str) -> int | None:
        """Version of an application transaction; a shard's never goes, so that it is remembered."""
        at, known = self._seen.get(name, (-1, None))
        if at != self.version and (known is None or name == FACTS):
            with translated(f"read the table '{self.uri}'"):
                known = self.handle.transaction_version(name)
            self._seen[name] = self.version, known
        return known

    def add(self, shards: Mapping[str, pa.Table], facts_version: int | None = None) -> int:
        """Commits records by their shards, all or none; what is committed already is left out.

        Args:
            shards: Records, tables of `SCHEMA`, by the names of their shards.
            facts_version: Version of the facts that they need; None, the default, for those that
                are known to the table.

        Returns:
            Number of records that were committed.

        Raises:
            WorkFailed: The storage does not answer, or others commit all the time.
        """
        if not shards and not self._lacks(facts_version):
            return 0

        def rest() -> tuple[pa.Table, list[str]]:
            held = self.holds(list(shards))
            left = {name: table for name, table in shards.items() if name not in held}
            tables = [with_shard(table, name) for name, table in left.items()]
            return pa.concat_tables([SHARED_SCHEMA.empty_table(), *tables]), list(left)

        return self._commit(self.uri, rest, facts_version)

    def facts(self) -> pa.Table:
        """Facts of this version, a table of `FACTS_SCHEMA`."""
        with translated(f"read the facts of '{self.uri}'"):
            version = self._committed(FACTS)
            if version is None:
                return FACTS_SCHEMA.empty_table()
            rows, newest = self.newest_facts()
            if version == newest:
                return rows
            handle = self._open(_facts(self.uri), version)
            return checked(self._read_facts(handle), FACTS_SCHEMA, self.uri)

    def _read_facts(self, handle: "DeltaTable") -> pa.Table:
        return handle.to_pyarrow_table(filesystem=file_system(_facts(self.uri)))

    def newest_facts(self) -> tuple[pa.Table, int]:
        """Facts that were added last, and their version, whether or not records need them yet."""
        with translated(f"read the facts of '{self.uri}'"):
            handle = self._newest(_facts(self.uri))
            version = int(handle.version())
            if self._known is None or self._known[1] != version:
                rows = checked(self._read_facts(handle), FACTS_SCHEMA, self.uri)
                self._known = rows, version
            return self._known

    def add_facts(self, facts: pa.Table, devices: Sequence[str]) -> int:
        """Adds facts.

        Args:
            facts: Table of `FACTS_SCHEMA`.
            devices: Names of new devices among them: of two processes that add one, one fails.

        Returns:
            Version of the facts, for the commit of the records that need them.

        Raises:
            DevicesTaken: Another process has added one of the devices meanwhile.
        """
        names = [f"device:{device}" for device in devices]
        at = _facts(self.uri)

        def rest() -> tuple[pa.Table, list[str]]:
            if any(self._handles[at].transaction_version(name) is not None for name in names):
                raise DevicesTaken
            return facts, names

        self._commit(at, rest, None)
        return int(self._handles[at].version())

    def _commit(self, at: TableUri, rest: Rest, facts_version: int | None) -> int:
        """Appends what `rest` says is still to be, until no other commit comes in between."""
        from deltalake import write_deltalake
        from deltalake.exceptions import CommitFailedError

        self.check_lock()
        for _ in range(self.config.attempts):
            with translated(f"append to the table '{self.uri}'"), committing(self.uri):
                handle = self._newest(at)
                table, names = rest()
                if not names and not (table.num_rows or self._lacks(facts_version)):
                    return 0
                try:
                    write_deltalake(
                        handle,
                        table,
                        mode="append",
                        schema_mode=None if has_columns(handle, table.schema) else "merge",
                        commit_properties=self._properties(names, facts_version),
                        writer_properties=self.config.written(),
                    )
                    return int(table.num_rows)
                except CommitFailedError:
                    pass  # another process committed the same shard, or changed the columns
            time.sleep(random.uniform(0, self.config.wait_s))
        raise WorkFailed(
            f"the table '{self.uri}', to which others committed {self.config.attempts} times",
            "a moment without",
            "the same call goes on",
        )

    def _lacks(self, facts_version: int | None) -> bool:
        """Whether the table does not know of these facts yet."""
        known = self._committed(FACTS)
        return facts_version is not None and (known is None or known < facts_version)

    def _properties(self, names: list[str], facts_version: int | None) -> "CommitProperties":
        from deltalake import CommitProperties, Transaction

        transactions = [Transaction(name, 1) for name in names]
        if facts_version is not None and self._lacks(facts_version):
            transactions.append(Transaction(FACTS, facts_version))
        return CommitProperties(
            app_transactions=transactions, max_commit_retries=self.config.attempts
        )

    def check_lock(self) -> None:
        """Refuses to commit without the lock that others commit under."""
        if self.handle.metadata().configuration.get(_LOCKED) and LOCK not in os.environ:
            raise DataError(
                f"table '{self.uri}', to which only those commit who have {LOCK}",
                f"{LOCK}, a PostgreSQL that all writers reach",
                f"set {LOCK}",
            )

    def _open(self, at: TableUri, version: AsOf | None) -> "DeltaTable":
        from deltalake import DeltaTable

        options = storage_options(self.uri)
        if version is None or isinstance(version, int):
            return DeltaTable(at, version=version, storage_options=options)
        handle = DeltaTable(at, storage_options=options)
        handle.load_as_version(version)
        return handle


def _facts(uri: TableUri) -> TableUri:
    """The engine passes over what begins so when it vacuums the table around it."""
    return TableUri(f"{uri}/_facts")
