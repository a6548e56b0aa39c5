"""The record store: a folder of Parquet shards that only grows.

DIR/store.json             schema version
DIR/shards.jsonl           one line a shard: path, SHA-256, rows, the journal it came from
DIR/device=D/operator=O/   shards, each named by its own digest
DIR/journal.jsonl          records not yet in a shard; an interrupt loses at most a torn line
DIR/sealed.jsonl           the journal while `compact` moves it into shards
DIR/devices/NAME.yaml      profile of each device that has records
DIR/networks.json          network -> task hash -> occurrences, 0 for another way of computing what
                           counts already
DIR/workloads.jsonl.gz     task hash -> the task's TVM module as JSON, in base64 in older stores
DIR/damaged/FILE.DIGEST    what `records repair` took out

One process writes at a time, see `writing`; any number may read, and is told to begin anew where
`compact` comes in between.
"""

import fcntl
import gzip
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, StringConstraints

from hetfeat.dataset import serialised
from hetfeat.dataset.files import RESTORE, append_lines, json_lines, repair_hint, sha256
from hetfeat.dataset.readers import Piece, journal_parts, row_groups
from hetfeat.dataset.schema import SCHEMA, to_row, to_table
from hetfeat.dataset.shards import ShardWriter, folder_of
from hetfeat.dataset.store_config import StoreConfig
from hetfeat.devices.profile import DeviceProfile, load_profile, save_profile
from hetfeat.durable import sync, write_file
from hetfeat.errors import DataError
from hetfeat.parsing import Count, Digest, Schema, decode, parse
from hetfeat.records import SCHEMA_VERSION, Measurement

JOURNAL, SEALED = "journal.jsonl", "sealed.jsonl"
SHARDS = "shards.jsonl"
WORKLOADS = "workloads.jsonl.gz"
HEAD, _DRAFT = "store.json", ".store.json."
COLLECT_HINT = "make one with `hetfeat collect --out DIR`"


_NETWORKS = dict[str, dict[str, Count]]
WORKLOAD = Annotated[list[str], Field(min_length=2, max_length=2)]
_NAME = r"[A-Za-z0-9_.~%-]*"


class _Head(Schema):
    """The content of `store.json`; `origin` is the version of a table of which it is a copy."""

    schema_version: Count
    origin: str | None = None


class ShardLine(Schema):
    """A line of `shards.jsonl`; its path leads to a file below the store."""

    path: Annotated[
        str,
        StringConstraints(pattern=rf"^device={_NAME}/operator={_NAME}/[0-9a-f]+\.parquet$"),
    ]
    sha256: Digest
    rows: Count
    journal: Digest | None = None
    pulled: list[Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]] | None = None


class RecordStore:
    """Measured records on disk. `open` reads an existing store, `create` makes or opens one.

    Args:
        path: Folder of the store.
        options: Sizes of what is written and bounds of what is read; those of `StoreConfig` by
            default.

    Examples:
        >>> import hetfeat
        >>> records = hetfeat.RecordStore.open("records")
        >>> sorted(records.devices())
        ['a', 'b']
        >>> sum(table.num_rows for table in records.scan(device="a"))
        72
    """

    def __init__(self, path: Path | str, options: StoreConfig = StoreConfig()) -> None:
        self.path, self.options = Path(path), options
        self._origin: str | None = None

    @classmethod
    def open(
        cls, path: Path | str, whole: bool = True, options: StoreConfig = StoreConfig()
    ) -> "RecordStore":
        """An existing store, its shards checked for presence if it must be `whole`.

        Raises:
            DataError: No store, a newer schema, or a shard that is missing.
        """
        path = Path(path)
        head = path / HEAD
        if not head.is_file():
            raise DataError(f"record store '{path}'", "a folder with a store.json", COLLECT_HINT)
        text, again = head.read_bytes(), "restore it, or collect anew"
        found = decode(text, _Head, what=f"'{head}'", action=again)
        if found.schema_version not in range(1, SCHEMA_VERSION + 1):
            raise DataError(
                f"record store '{path}' of schema {found.schema_version}",
                f"schema 1 to {SCHEMA_VERSION}",
                "update hetfeat",
            )
        store = cls(path, options)
        store._origin = found.origin
        for shard in store.shards() if whole else []:
            if not (path / shard["path"]).is_file():
                raise DataError(
                    f"record store '{path}' without its shard {shard['path']}",
                    "every shard listed in shards.jsonl",
                    f"restore it from where the store was copied, or {repair_hint(path)}",
                )
        return store

    @classmethod
    def create(cls, path: Path | str, options: StoreConfig = StoreConfig()) -> "RecordStore":
        """The store at `path`, made if there is none.

        Raises:
            DataError: The folder holds something else.
        """
        path = Path(path)
        held = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
        if (path / HEAD).exists():  # looked at last: another process may make the store meanwhile
            return cls.open(path, options=options)
        if (path.exists() and not path.is_dir()) or any(_DRAFT not in name for name in held):
            raise DataError(
                f"'{path}'", "a record store or an empty folder", "choose another --out"
            )
        path.mkdir(parents=True, exist_ok=True)
        sync(path.parent)
        draft = path / f"{_DRAFT}{secrets.token_hex(8)}"
        write_file(draft, json.dumps({"schema_version": SCHEMA_VERSION}).encode())
        try:
            os.link(draft, path / HEAD)  # never replaced, for it is what writers lock
        except FileExistsError:
            pass  # another process was first
        except OSError:  # no links on this file system
            draft.replace(path / HEAD)
        draft.unlink(missing_ok=True)
        sync(path)
        return cls.open(path, options=options)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keeps others from writing to the store; ends with the process, however that ends.

        Raises:
            DataError: Another process is writing, or has removed the store.
        """
        try:
            head = (self.path / HEAD).open()
        except FileNotFoundError as error:
            raise DataError(
                f"record store '{self.path}', which has just gone", "a store", COLLECT_HINT
            ) from error
        with head:
            if not self._locked(head):
                raise DataError(
                    f"record store '{self.path}', to which another process writes",
                    "one that writes at a time",
                    "wait until it ends, or stop it, or choose another --out",
                )
            yield

    def _locked(self, head: IO[str]) -> bool:
        """Whether the store is locked by its head, and not by one that others find no more."""
        try:
            fcntl.flock(head, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.path.samestat(os.fstat(head.fileno()), (self.path / HEAD).stat())
        except (BlockingIOError, FileNotFoundError):
            return False

    def shards(self) -> list[dict[str, Any]]:
        """The shards, oldest first: `path`, `sha256`, `rows`."""
        path = self.path / SHARDS
        what, action = f"'{path}' with a line that is no shard", repair_hint(self.path)
        lines = list(json_lines(path, action=action, options=self.options))
        for line in lines:
            parse(line, ShardLine, what=what, action=action)
        return lines

    def append(self, measurements: Iterable[Measurement]) -> None:
        """Writes measurements to the journal, a line each; on the disk when this returns."""
        append_lines(self.path / JOURNAL, map(to_row, measurements), self.options)

    def compact(self) -> None:
        """Moves the journal into shards; safe to interrupt and to repeat."""
        self._store_sealed()
        if (self.path / JOURNAL).is_file():
            os.replace(self.path / JOURNAL, self.path / SEALED)
            sync(self.path)  # or a journal might come back whose records are in shards
            self._store_sealed()

    def writer(self) -> ShardWriter:
        """Writes records straight into shards, each listed once it is complete."""
        return ShardWriter(self.path, lambda shard: self.list_shards([shard]), self.options)

    def pieces(
        self, device: str | None = None, where: pc.Expression | None = None
    ) -> Iterator[Piece]:
        """All records in pieces, shards first; those that hold nothing wanted are left out.

        Args:
            device: Name of the wanted device; None, the default, for all. A piece of the journal
                may hold others, too.
            where: Condition on the wanted records, which a piece may fulfil; None, the default, for
                all.

        Raises:
            DataError: A shard is damaged.
        """
        start = "" if device is None else folder_of(device)
        # Journals before shards: what is moved in between shows as a journal that has gone.
        journals = [part for path in self.journals() for part in journal_parts(path, self.options)]
        for shard in self.shards():
            if shard["path"].startswith(start):
                yield from row_groups(self.path / shard["path"], where, self.options)
        yield from journals

    def scan(
        self,
        columns: Sequence[str] | None = None,
        device: str | None = None,
        where: pc.Expression | None = None,
    ) -> Iterator[pa.Table]:
        """Records, some ten thousand at a time, as tables of `SCHEMA`'s columns or those named.

        Args:
            columns: Names of the wanted columns; None, the default, for all.
            device: Name of the wanted device; None, the default, for all.
            where: Condition on the wanted records, say `pc.field("program").isin(keys)`; None, the
                default, for all.

        Raises:
            DataError: A shard is damaged.
        """
        if device is not None:
            of_device = pc.field("device") == device
            where = of_device if where is None else where & of_device
        for piece in self.pieces(device, where):
            yield piece.read(columns, where)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All records at once, for stores that fit into memory; see `scan`."""
        return pa.concat_tables([to_table([]).select(columns or SCHEMA.names), *self.scan(columns)])

    def program_keys(self, device: str) -> Iterator[list[str]]:
        """Keys of the programs measured on a device, some at a time."""
        for table in self.scan(["program"], device):
            yield table["program"].to_pylist()

    def digest(self) -> str:
        """SHA-256 over the digests of all shards and the journal: the data set's identity."""
        if self._origin is not None:  # the same on every machine
            return hashlib.sha256(self._origin.encode()).hexdigest()
        parts = sorted(shard["sha256"] for shard in self.shards())
        parts += [sha256(journal) for journal in self.journals()]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @contextmanager
    def undisturbed(self) -> Iterator[str]:
        """The digest of what is read meanwhile.

        Raises:
            DataError: Another process has written to the store meanwhile.
        """
        before = self.digest()
        yield before
        if self.digest() != before:
            raise DataError(
                f"record store '{self.path}', which grew while it was read",
                "a store that nobody writes to meanwhile",
                "begin anew once the other process has ended",
            )

    def damaged_shards(self) -> list[str]:
        """Paths of the shards that are missing or whose bytes are not those written."""
        return [
            shard["path"]
            for shard in self.shards()
            if not (path := self.path / shard["path"]).is_file() or sha256(path) != shard["sha256"]
        ]

    def add_device(self, profile: DeviceProfile) -> None:
        """Keeps the profile of a device beside its records."""
        path = self.path / "devices" / f"{profile.name}.yaml"
        if not path.exists():
            save_profile(profile, path)

    def devices(self) -> dict[str, DeviceProfile]:
        """The profiles kept, by name."""
        found = (load_profile(p) for p in sorted((self.path / "devices").glob("*.yaml")))
        return {profile.name: profile for profile in found}

    def measured_devices(self) -> set[str]:
        """Names of the devices that have records; a profile may be kept without any."""
        tables = self.scan(["device"])
        return {name for table in tables for name in table["device"].unique().to_pylist()}

    def add_network(
        self, name: str, weights: Mapping[str, int], modules: Mapping[str, str]
    ) -> None:
        """Keeps a network's tasks: occurrences and serialised TVM modules by task hash.

        Tasks that it is known to have remain: their records do.
        """
        networks = self.networks()
        networks[name] = networks.get(name, {}) | dict(weights)
        write_file(self.path / "networks.json", json.dumps(networks, indent=1).encode())
        self.add_workloads(modules)

    def add_workloads(self, modules: Mapping[str, str]) -> None:
        """Keeps serialised TVM modules by task hash.

        Raises:
            DataError: They are more than would be read.
        """
        known = self.workloads()
        if new := {task: module for task, module in modules.items() if task not in known}:
            pairs = ((task, serialised.to_text(module)) for task, module in (known | new).items())
            lines = "".join(json.dumps(pair) + "\n" for pair in pairs).encode()
            if len(lines) > (most := self.options.max_unpacked_bytes):
                raise DataError(
                    f"'{self.path / WORKLOADS}' of {len(lines)} bytes unpacked",
                    f"{most} bytes at most",
                    "divide the tasks among stores",
                )
            write_file(self.path / WORKLOADS, gzip.compress(lines, mtime=0))

    def networks(self) -> dict[str, dict[str, int]]:
        """Occurrences of each task, by network and task hash; see the module."""
        path = self.path / "networks.json"
        if not path.is_file():
            return {}
        what = f"'{path}', which is not JSON of networks"
        found: dict[str, dict[str, int]] = decode(
            path.read_bytes(), _NETWORKS, what=what, action=RESTORE, max_bytes=2**26
        )
        return found

    def workloads(self) -> dict[str, str]:
        """Serialised TVM module of each task, by task hash.

        Raises:
            DataError: The file is damaged, or unpacks to too much.
        """
        path, found = self.path / WORKLOADS, dict[str, str]()
        what, action = f"'{path}' with a line that is no workload", repair_hint(self.path)
        for line in json_lines(path, action=action, options=self.options):
            task, module = parse(line, WORKLOAD, what=what, action=action)
            found[task] = serialised.of_text(module)
        return found

    def _store_sealed(self) -> None:
        """Moves the sealed journal into shards, which are listed all at once or not at all."""
        sealed = self.path / SEALED
        if sealed in self.journals():
            lines: list[dict[str, Any]] = []
            writer = ShardWriter(self.path, lines.append, self.options)
            for part in journal_parts(sealed, self.options):
                writer.add(part.read())
            writer.close()
            digest = sha256(sealed)
            self.list_shards([line | {"journal": digest} for line in lines])
        sealed.unlink(missing_ok=True)

    def journals(self) -> list[Path]:
        """The journals whose records no shard holds.

        A sealed one may have been stored already, the interrupt having come before its removal.
        """
        sealed, journal = self.path / SEALED, self.path / JOURNAL
        found = [journal] if journal.is_file() else []
        if sealed.is_file() and sha256(sealed) not in {s.get("journal") for s in self.shards()}:
            found.insert(0, sealed)
        return found

    def list_shards(self, shards: list[dict[str, Any]]) -> None:
        """Lists shards that are written, all at once."""
        known = {shard["path"]: shard for shard in self.shards()}
        known |= {shard["path"]: shard for shard in shards}
        lines = "".join(json.dumps(shard) + "\n" for shard in known.values())
        write_file(self.path / SHARDS, lines.encode())
