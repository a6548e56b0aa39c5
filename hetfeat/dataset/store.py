"""The record store: a folder of Parquet shards that only grows.

DIR/store.json             schema version
DIR/shards.jsonl           one line a shard: path, SHA-256, rows
DIR/device=D/operator=O/   shards, each named by its own digest
DIR/journal.jsonl          records not yet in a shard; an interrupt loses at most a torn line
DIR/devices/NAME.yaml      profile of each device that has records
DIR/networks.json          network -> task hash -> occurrences
DIR/workloads.jsonl.gz     task hash -> the task's TVM module, serialised
"""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hetfeat.dataset.schema import SCHEMA, to_row, to_table
from hetfeat.devices.profile import DeviceProfile, load_profile, save_profile
from hetfeat.errors import DataError
from hetfeat.records import SCHEMA_VERSION, Measurement

WORKLOADS = "workloads.jsonl.gz"
RESTORE = "restore the file from where the store was copied"
COLLECT_HINT = "make one with `hetfeat collect --out DIR`"


class RecordStore:
    """Measured records on disk. `open` reads an existing store, `create` makes or opens one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: Path) -> "RecordStore":
        """An existing store, its shards checked for presence.

        Raises:
            DataError: No store, a newer schema, or a shard that is missing.
        """
        head = path / "store.json"
        if not head.is_file():
            raise DataError(f"record store '{path}'", "a folder with a store.json", COLLECT_HINT)
        try:
            version = json.loads(head.read_text())["schema_version"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"'{head}'", "JSON with a schema_version", "restore it, or collect anew"
            ) from error
        if version not in range(1, SCHEMA_VERSION + 1):
            raise DataError(
                f"record store '{path}' of schema {version}",
                f"schema 1 to {SCHEMA_VERSION}",
                "update hetfeat",
            )
        store = cls(path)
        for shard in store.shards():
            if not (path / shard["path"]).is_file():
                raise DataError(
                    f"record store '{path}' without its shard {shard['path']}",
                    "every shard listed in shards.jsonl",
                    "restore the shard from where the store was copied",
                )
        return store

    @classmethod
    def create(cls, path: Path) -> "RecordStore":
        """The store at `path`, made if there is none.

        Raises:
            DataError: The folder holds something else.
        """
        if (path / "store.json").exists():
            return cls.open(path)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise DataError(
                f"'{path}'", "a record store or an empty folder", "choose another --out"
            )
        path.mkdir(parents=True, exist_ok=True)
        _write_atomically(
            path / "store.json", json.dumps({"schema_version": SCHEMA_VERSION}).encode()
        )
        return cls(path)

    def shards(self) -> list[dict[str, Any]]:
        """The shards, oldest first: `path`, `sha256`, `rows`."""
        return list(_json_lines(self.path / "shards.jsonl"))

    def append(self, measurements: Iterable[Measurement]) -> None:
        """Writes measurements to the journal, one flushed line each."""
        journal = self.path / "journal.jsonl"
        _end_torn_line(journal)
        with journal.open("a") as file:
            for measurement in measurements:
                file.write(json.dumps(to_row(measurement)) + "\n")
                file.flush()

    def compact(self) -> None:
        """Moves the journal into shards; safe to interrupt and to repeat."""
        self.add_table(self._journal_table(), compression_level=19)
        (self.path / "journal.jsonl").unlink(missing_ok=True)

    def add_table(self, table: pa.Table, compression_level: int = 1) -> None:
        """Writes records, a table of `SCHEMA`, straight into shards."""
        for device, operator in _pairs(table):
            part = pa.Table.from_batches(_of_pair(table, device, operator), SCHEMA)
            self._add_shard(f"device={device}/operator={operator}", part, compression_level)

    def program_keys(self, device: str) -> Iterator[list[str]]:
        """Keys of the programs measured on a device, some at a time."""
        for shard in self.shards():
            if shard["path"].startswith(f"device={device}/"):
                with pq.ParquetFile(self.path / shard["path"]) as file:
                    for batch in file.iter_batches(columns=["program"]):
                        yield batch["program"].to_pylist()
        journal = self._journal_table()
        yield journal.filter(pc.equal(journal["device"], device))["program"].to_pylist()

    def read(self, columns: list[str] | None = None) -> pa.Table:
        """All records, shards first, as a table of `SCHEMA`'s columns or of those named.

        Raises:
            DataError: A shard cannot be read.
        """
        tables = [self._read_shard(shard["path"], columns) for shard in self.shards()]
        tables.append(self._journal_table().select(columns or SCHEMA.names))
        return pa.concat_tables(tables)

    def programs(self, device: str) -> dict[str, set[str]]:
        """Keys of the programs measured on a device, by task hash."""
        table = self.read(["device", "task", "program"])
        table = table.filter(pc.equal(table["device"], device))
        found: dict[str, set[str]] = {}
        tasks, programs = table["task"].to_pylist(), table["program"].to_pylist()
        for task, program in zip(tasks, programs, strict=True):
            found.setdefault(task, set()).add(program)
        return found

    def digest(self) -> str:
        """SHA-256 over the digests of all shards and the journal: the data set's identity."""
        parts = sorted(shard["sha256"] for shard in self.shards())
        journal = self.path / "journal.jsonl"
        if journal.is_file():
            parts.append(hashlib.sha256(journal.read_bytes()).hexdigest())
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def damaged(self) -> list[str]:
        """Paths of the shards whose bytes are not those written."""
        return [
            shard["path"]
            for shard in self.shards()
            if _sha256(self.path / shard["path"]) != shard["sha256"]
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

    def add_network(self, name: str, weights: dict[str, int], modules: dict[str, str]) -> None:
        """Keeps a network's tasks: occurrences and serialised TVM modules by task hash."""
        networks = self.networks() | {name: weights}
        _write_atomically(self.path / "networks.json", json.dumps(networks, indent=1).encode())
        known = self.workloads()
        if new := {task: module for task, module in modules.items() if task not in known}:
            lines = "".join(json.dumps(pair) + "\n" for pair in (known | new).items())
            _write_atomically(self.path / WORKLOADS, gzip.compress(lines.encode(), mtime=0))

    def networks(self) -> dict[str, dict[str, int]]:
        """Occurrences of each task, by network and task hash."""
        path = self.path / "networks.json"
        if not path.is_file():
            return {}
        try:
            found: dict[str, dict[str, int]] = json.loads(path.read_text())
        except ValueError as error:
            raise DataError(f"'{path}', which is not JSON", "JSON", RESTORE) from error
        return found

    def workloads(self) -> dict[str, str]:
        """Serialised TVM module of each task, by task hash."""
        return dict(_json_lines(self.path / WORKLOADS))

    def _add_shard(self, folder: str, table: pa.Table, compression_level: int) -> None:
        (self.path / folder).mkdir(parents=True, exist_ok=True)
        draft = self.path / folder / ".draft"
        pq.write_table(table, draft, compression="zstd", compression_level=compression_level)
        digest = _sha256(draft)
        path = f"{folder}/{digest[:32]}.parquet"
        os.replace(draft, self.path / path)
        if all(shard["path"] != path for shard in self.shards()):
            line = {"path": path, "sha256": digest, "rows": table.num_rows}
            shards = self.path / "shards.jsonl"
            _end_torn_line(shards)
            with shards.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def _read_shard(self, path: str, columns: list[str] | None) -> pa.Table:
        try:
            return pq.ParquetFile(self.path / path).read(columns or SCHEMA.names)
        except (OSError, pa.ArrowException) as error:
            raise DataError(
                f"shard '{self.path / path}', which cannot be read ({type(error).__name__})",
                "an intact Parquet file",
                "restore it; `hetfeat records verify DIR` lists every damaged shard",
            ) from error

    def _journal_table(self) -> pa.Table:
        """Journal lines that no shard holds yet (an interrupted `compact` leaves both)."""
        rows = list(_json_lines(self.path / "journal.jsonl"))
        if not rows:
            return to_table([])
        done: set[tuple[str, str]] = set()
        for shard in self.shards():
            part = self._read_shard(shard["path"], ["device", "program"]).to_pydict()
            done.update(zip(part["device"], part["program"], strict=True))
        return to_table(row for row in rows if (row["device"], row["program"]) not in done)


def _pairs(table: pa.Table) -> list[tuple[str, str]]:
    keys = table.group_by(["device", "operator"]).aggregate([]).to_pydict()
    return sorted(zip(keys["device"], keys["operator"], strict=True))


def _of_pair(table: pa.Table, device: str, operator: str) -> Iterator[pa.RecordBatch]:
    for batch in table.to_batches():
        mask = pc.and_(pc.equal(batch["device"], device), pc.equal(batch["operator"], operator))
        whole = pc.all(mask).as_py()  # the usual case of an import, and then not copied
        yield batch if whole else batch.filter(mask)


def _json_lines(path: Path) -> Iterator[Any]:
    """Lines of a JSON-lines file; a torn last line, the mark of an interrupt, is left out."""
    if not path.is_file():
        return
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        line = ""
        try:
            for line in file:
                yield json.loads(line)
        except (ValueError, EOFError, OSError, zlib.error) as error:
            torn = isinstance(error, json.JSONDecodeError) and not line.endswith("\n")
            if not torn:
                raise DataError(
                    f"'{path}' with a line that is not JSON", "one JSON value a line", RESTORE
                ) from error


def _end_torn_line(path: Path) -> None:
    """Cuts a torn last line off, so that what is appended starts on a line of its own."""
    if not path.is_file() or path.stat().st_size == 0:
        return
    with path.open("rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def _write_atomically(path: Path, data: bytes) -> None:
    draft = path.with_name(path.name + ".draft")
    draft.write_bytes(data)
    os.replace(draft, path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
