"""Repairing a store: what is whole stays, what is not is put beside it, and nothing is deleted.

DIR/damaged/FILE.DIGEST   bad lines of a file, or a whole shard; DIGEST is of the damaged file

What is put beside is on the disk before its file is replaced, and has the same name if that is done
again: a repair that was killed is repeated.
"""

import gzip
import json
import os
import secrets
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from hetfeat.dataset.files import sha256
from hetfeat.dataset.readers import records_of, row_groups
from hetfeat.dataset.sidecar_files import LINES
from hetfeat.dataset.store import SHARDS, WORKLOAD, WORKLOADS, RecordStore, ShardLine
from hetfeat.dataset.store_config import StoreConfig
from hetfeat.durable import sync, write_file
from hetfeat.errors import DataError
from hetfeat.parsing import decode

BESIDE = "damaged"

Lines = list[bytes]
Span = tuple[int, int]


@dataclass
class Repaired:
    """What was found: numbers by what became of them, and where what was bad is now."""

    records: Counter[str] = field(default_factory=lambda: Counter(kept=0, set_aside=0))
    shards: Counter[str] = field(
        default_factory=lambda: Counter(kept=0, set_aside=0, missing=0, listed_again=0)
    )
    lines: Counter[str] = field(default_factory=lambda: Counter(kept=0, set_aside=0))
    set_aside: list[Path] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)

    def count(self, path: Path, kept: int, bad: int) -> None:
        """Notes the lines of a file."""
        self.lines.update(kept=kept, set_aside=bad)
        self.files.append({"file": path.name, "kept": kept, "set_aside": bad})


def repair(store: RecordStore) -> Repaired:
    """Puts bad lines, and shards that are not as they were written, beside the others.

    Args:
        store: Store that was opened with `whole=False`.

    Raises:
        DataError: Another process writes to the store.
    """
    found, options = Repaired(), store.options
    with store.writing():
        _repair_index(store.path, options, found)
        for journal in store.journals():
            kept, bad = _repair_lines(journal, partial(_are_records, journal), options, found)
            found.records.update(kept=kept, set_aside=bad)
        for name, kind in LINES.items():
            _repair_lines(store.path / name, partial(_are, kind, options), options, found)
        _repair_workloads(store.path / WORKLOADS, options, found)
    return found


def _repair_index(store: Path, options: StoreConfig, found: Repaired) -> None:
    """Leaves out lines that are no shards, and shards that are missing, damaged or listed twice."""
    index = store / SHARDS
    if not index.is_file():
        return
    kept: dict[str, bytes] = {}
    bad: list[Span] = []
    listed: dict[str, int] = {}
    for span, line in _lines_of(index, options.max_line_bytes):
        shard = _shard(line or b"")
        if shard and shard.path not in kept and _is_whole(store, shard, options):
            kept[shard.path] = (line or b"").rstrip(b"\n") + b"\n"
            found.records["kept"] += shard.rows
            continue
        bad.append(span)
        if shard:
            listed[shard.path] = shard.rows
    found.count(index, len(kept), len(bad))
    if not bad:
        found.shards["kept"] = len(kept)
        return
    _put_beside(index, bad, found)
    again = _unlisted(store, kept, options)
    for path, rows in listed.items():
        if path not in kept and path not in again:
            _move_beside(store, path, rows, found)
    found.records["kept"] += sum(line["rows"] for line in again.values())
    found.shards["kept"], found.shards["listed_again"] = len(kept) + len(again), len(again)
    lines = [*kept.values(), *(json.dumps(line).encode() + b"\n" for line in again.values())]
    write_file(index, b"".join(lines))


def _unlisted(
    store: Path, kept: dict[str, bytes], options: StoreConfig
) -> dict[str, dict[str, Any]]:
    """Lines of whole shards that no good line names: their names are their digests."""
    found = {}
    for file in sorted(store.glob("device=*/operator=*/*.parquet")):
        path = file.relative_to(store).as_posix()
        if path in kept or (digest := sha256(file))[:32] != file.stem:
            continue
        line = {"path": path, "sha256": digest, "rows": _rows_of(file, options)}
        if _shard(json.dumps(line).encode()):  # a folder may have a name of its own, too
            found[path] = line
    return found


def _move_beside(store: Path, path: str, rows: int, found: Repaired) -> None:
    """Takes a damaged shard out of its folder."""
    file = store / path
    if not file.is_file():
        found.shards["missing"] += 1
        return
    target = _beside(file, store)
    os.replace(file, target)  # what might have the name has the same bytes
    sync(target.parent)
    sync(file.parent)
    found.set_aside.append(target)
    found.shards["set_aside"] += 1
    found.records["set_aside"] += rows


def _repair_lines(
    path: Path, are_whole: Callable[[Lines], bool], options: StoreConfig, found: Repaired
) -> tuple[int, int]:
    """Puts the lines of a file beside that are not whole; how many stay, how many do not."""
    if not path.is_file():
        return 0, 0
    kept, bad, number = list[Span](), list[Span](), 0
    for block in _blocks(path, options):
        lines = [line for _, line in block if line is not None]
        as_one = len(lines) == len(block) and are_whole(lines)
        for span, line in block:
            if as_one or (line is not None and are_whole([line])):
                number += 1
                start = kept.pop()[0] if kept and kept[-1][1] == span[0] else span[0]
                kept.append((start, span[1]))
            else:
                bad.append(span)
    found.count(path, number, len(bad))
    if bad:
        _put_beside(path, bad, found)
        _copy(path, kept, path)
    return number, len(bad)


def _repair_workloads(path: Path, options: StoreConfig, found: Repaired) -> None:
    """`_repair_lines` for a packed file; all of it is put beside, for it may not unpack."""
    if not path.is_file():
        return
    kept, bad = Lines(), 0
    try:
        with gzip.open(path, "rb") as file:
            for (_, end), line in _lines(file, options.max_line_bytes):
                if line is not None and _are(WORKLOAD, options, [line]):
                    kept.append(line.rstrip(b"\n") + b"\n")
                else:
                    bad += 1
                if end > options.max_unpacked_bytes:
                    raise EOFError
    except (EOFError, OSError, zlib.error):
        bad += 1
    found.count(path, len(kept), bad)
    if bad:
        _put_beside(path, [(0, path.stat().st_size)], found)
        write_file(path, gzip.compress(b"".join(kept), mtime=0))


def _shard(line: bytes) -> ShardLine | None:
    try:
        return decode(line, ShardLine, what="", action="")
    except DataError:
        return None


def _is_whole(store: Path, shard: ShardLine, options: StoreConfig) -> bool:
    file = store / shard.path
    if not file.is_file() or sha256(file) != shard.sha256:
        return False
    return _rows_of(file, options) is not None


def _rows_of(shard: Path, options: StoreConfig) -> int | None:
    """Rows of a shard, each of which is read; None if it cannot be."""
    try:
        return sum(int(piece.read().num_rows) for piece in row_groups(shard, options=options))
    except DataError:
        return None


def _are_records(path: Path, lines: Lines) -> bool:
    try:
        return bool(records_of(lines, path).num_rows == len(lines))  # a torn one is left out
    except DataError:
        return False


def _are(kind: Any, options: StoreConfig, lines: Lines) -> bool:
    try:
        for line in lines:
            decode(line, kind, what="", action="", max_bytes=options.max_line_bytes)
    except DataError:
        return False
    return True


def _lines(
    file: IO[bytes] | gzip.GzipFile, max_line_bytes: int
) -> Iterator[tuple[Span, bytes | None]]:
    """Lines and where they are; None for those that are too long to be any."""
    start = 0
    while line := file.readline(max_line_bytes + 1):
        end = start + len(line)
        if too_long := len(line) > max_line_bytes:
            while not line.endswith(b"\n") and (line := file.readline(max_line_bytes)):
                end += len(line)
        yield (start, end), None if too_long else line
        start = end


def _lines_of(path: Path, max_line_bytes: int) -> Iterator[tuple[Span, bytes | None]]:
    with path.open("rb") as file:
        yield from _lines(file, max_line_bytes)


def _blocks(path: Path, options: StoreConfig) -> Iterator[list[tuple[Span, bytes | None]]]:
    """Lines, as many at a time as are read of a journal at once."""
    block: list[tuple[Span, bytes | None]] = []
    for span, line in _lines_of(path, options.max_line_bytes):
        block.append((span, line))
        if span[1] - block[0][0][0] >= options.journal_bytes:
            yield block
            block = []
    yield block


def _put_beside(path: Path, bad: list[Span], found: Repaired) -> None:
    """Copies spans of a file to where what is bad is kept."""
    target = _beside(path, path.parent)
    if not target.exists():  # else a repair was killed before it replaced the file
        _copy(path, bad, target)
    found.set_aside.append(target)


def _beside(path: Path, store: Path) -> Path:
    folder = store / BESIDE
    folder.mkdir(exist_ok=True)
    sync(store)
    return folder / f"{path.name}.{sha256(path)[:32]}"


def _copy(source: Path, spans: list[Span], target: Path, block_bytes: int = 2**20) -> None:
    """Makes spans of a file another one, or the same, as a whole."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    with source.open("rb") as file, draft.open("xb") as copied:
        for start, end in spans:
            file.seek(start)
            for at in range(start, end, block_bytes):
                copied.write(file.read(min(block_bytes, end - at)))
    sync(draft)
    os.replace(draft, target)
    sync(target.parent)
