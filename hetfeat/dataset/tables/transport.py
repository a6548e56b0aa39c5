"""Records on their way: from stores to a table, from a table to a store, from stores to a store."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from hetfeat.dataset.readers import row_groups
from hetfeat.dataset.shards import ShardWriter, folder_of
from hetfeat.dataset.store import RecordStore
from hetfeat.dataset.tables.facts import Facts
from hetfeat.dataset.tables.joining import (
    IDENTITY,
    Joined,
    Joining,
    check_profiles,
    renamed,
    shard_name,
)
from hetfeat.dataset.tables.table import DevicesTaken, RecordTable

NO_NAMES: Mapping[str, str] = {}


def push(
    store: RecordStore,
    table: RecordTable,
    rename: Mapping[str, str] = NO_NAMES,
    compare: bool = True,
    batch_bytes: int = 2**26,
) -> Joined:
    """Commits the shards of a store that the table does not have; the journal becomes shards first.

    A shard is committed once, whoever pushes it and however often.

    Args:
        store: Store that is pushed.
        table: Table that it is pushed into.
        rename: New names of devices, by their names in the store; none by default.
        compare: Whether measurements that came into the table by another way are looked for, which
            reads some columns of the whole table; default True.
        batch_bytes: Memory of the records of a commit; 64 MB by default.

    Raises:
        DataError: A device has the name of another device of the table.
        WorkFailed: The storage does not answer.
    """
    if store.journals():
        with store.writing():
            RecordStore.compact(store)  # that of a shared store would push
    facts = Facts.of_store(store).renamed(rename)
    facts_version = _push_facts(facts, table, str(store.path))
    new = _not_held(store.shards(), table, rename)
    devices = [rename.get(name, name) for name in store.measured_devices()] if new else []
    joining = Joining(table.scan(IDENTITY, devices) if compare and new else [])
    waiting: dict[str, pa.Table] = {}
    for name, line in new.items():
        pieces = row_groups(store.path / line["path"], options=store.options)
        rows = renamed(pa.concat_tables(piece.read() for piece in pieces), rename)
        waiting[name] = joining.fresh(rows)
        if sum(rows.nbytes for rows in waiting.values()) > batch_bytes:
            table.add(waiting, facts_version)
            waiting = {}
    table.add(waiting, facts_version)
    return joining.joined


def _push_facts(facts: Facts, table: RecordTable, store: str) -> int | None:
    """Adds what the table lacks; returns the version that the records need."""
    while True:
        rows, version = table.newest_facts()
        there = Facts.of_rows(rows, str(table.uri))
        check_profiles(there.devices, facts.devices, f"'{table.uri}'", f"'{store}'")
        lacking = facts.beyond(there)
        if not lacking.num_rows:
            return version
        try:
            return table.add_facts(lacking, sorted(set(facts.devices) - set(there.devices)))
        except DevicesTaken:
            continue  # of another process: are they the same?


def _not_held(
    shards: list[dict[str, Any]], table: RecordTable, rename: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Shards whose records are not in the table, by their names there."""
    named = {shard_name(line["sha256"], rename): line for line in shards}
    pulled = {name: [] if rename else line.get("pulled") or [] for name, line in named.items()}
    held = table.holds([*named, *(each for names in pulled.values() for each in names)])
    return {
        name: line
        for name, line in named.items()
        if name not in held and not (pulled[name] and set(pulled[name]) <= held)
    }


def pull(
    table: RecordTable,
    store: RecordStore,
    devices: Sequence[str] | None = None,
    rename: Mapping[str, str] = NO_NAMES,
) -> Joined:
    """Adds the records of a table to a store, all at once; those that it has are left out.

    Args:
        table: Table that is read.
        store: Store that they are added to.
        devices: Names of the wanted devices in the table; None, the default, for all.
        rename: New names of devices, by their names in the table; none by default.

    Raises:
        DataError: A device has the name of another device of the store.
        WorkFailed: The storage does not answer.
    """
    facts = Facts.of_rows(table.facts(), str(table.uri))
    if devices is not None:
        facts.devices = {name: p for name, p in facts.devices.items() if name in devices}
    facts = facts.renamed(rename)
    check_profiles(store.devices(), facts.devices, f"'{store.path}'", f"'{table.uri}'")
    with store.writing():
        facts.save(store)
        joining = Joining(store.scan(IDENTITY))
        lines: list[dict[str, Any]] = []
        origins: dict[str, set[str]] = defaultdict(set)
        writer = ShardWriter(store.path, lines.append, store.options)
        for rows in table.scan(devices=devices, without=_known(store)):
            rows = renamed(rows, rename)
            for key in rows.group_by(["device", "operator", "shard"]).aggregate([]).to_pylist():
                origins[folder_of(key["device"], key["operator"])].add(key["shard"])
            writer.add(joining.fresh(rows).drop(["shard"]))
        writer.close()
        store.list_shards(
            [line | {"pulled": sorted(origins[line["path"].rsplit("/", 1)[0]])} for line in lines]
        )
    return joining.joined


def _known(store: RecordStore) -> list[str]:
    """Shards whose records a store has, by their names in a table."""
    lines = store.shards()
    own = {shard_name(line["sha256"], NO_NAMES) for line in lines}
    return sorted(own.union(*(line.get("pulled") or [] for line in lines)))


def merge(
    sources: Sequence[RecordStore], target: RecordStore, rename: Mapping[str, str] = NO_NAMES
) -> Joined:
    """Adds the records of stores to a store; those that it has are left out.

    An interrupt leaves what was added, and the same call goes on.

    Args:
        sources: Stores that are read.
        target: Store that they are added to.
        rename: New names of devices, by their names in the sources; none by default.

    Raises:
        DataError: A device has the name of another device.
    """
    with target.writing():
        known = target.devices()
        joining_facts = []
        for source in sources:
            facts = Facts.of_store(source)
            facts = facts.renamed({n: new for n, new in rename.items() if n in facts.devices})
            check_profiles(known, facts.devices, f"'{target.path}'", f"'{source.path}'")
            known = facts.devices | known
            joining_facts.append(facts)
        for facts in joining_facts:
            facts.save(target)
        joining = Joining(target.scan(IDENTITY))
        writer = target.writer()
        for source in sources:
            for rows in _all(source):
                writer.add(joining.fresh(renamed(rows, rename)))
        writer.close()
    return joining.joined


def _all(source: RecordStore) -> Iterator[pa.Table]:
    """Records of a store that nobody writes to meanwhile."""
    with source.undisturbed():
        yield from source.scan()
