"""Small files of a store: JSON lines that may end in a torn one, whole files replaced at once."""

import gzip
import hashlib
import json
import os
import shlex
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from hetfeat.dataset.store_config import StoreConfig
from hetfeat.durable import sync
from hetfeat.errors import DataError

RESTORE = "restore the file from where the store was copied"


def repair_hint(store: Path) -> str:
    """What to do about a bad line or shard of a store."""
    command = f"hetfeat records repair {shlex.quote(str(store))}"
    return f"`{command}` sets it aside and keeps the rest"


def json_lines(
    path: Path,
    *,
    action: str = RESTORE,
    options: StoreConfig = StoreConfig(),
) -> Iterator[Any]:
    """Lines of a JSON-lines file; a torn last line, the mark of an interrupt, is left out.

    Args:
        path: Path of the file, which gzip has packed if it is named so; an absent file has no
            lines.
        action: Words for what to do where the file is damaged; `RESTORE` by default.
        options: Longest line, and most that a packed file may hold; those of `StoreConfig` by
            default.

    Raises:
        DataError: A whole line is not JSON or too long, or the file is damaged or too long.
    """
    if not path.is_file():
        return
    packed = path.suffix == ".gz"
    most = options.max_unpacked_bytes if packed else None
    with gzip.open(path, "rb") if packed else path.open("rb") as file:
        lines = bounded(file, path, most, action, options.max_line_bytes)
        yield from parsed(lines, path, action)


def bounded(
    file: IO[bytes] | gzip.GzipFile,
    path: Path,
    most_bytes: int | None,
    action: str,
    max_line_bytes: int,
) -> Iterator[bytes]:
    """Lines of a file that is open, `most_bytes` of them in all.

    Raises:
        DataError: A line, or all of them, are longer.
    """
    taken = 0
    while line := file.readline(max_line_bytes + 1):
        taken += len(line)
        if len(line) > max_line_bytes:
            raise too_long(path, max_line_bytes, action)
        if most_bytes is not None and taken > most_bytes:
            given = f"'{path}', which unpacks to {taken} bytes and more"
            raise DataError(given, f"{most_bytes} bytes at most", action)
        yield line


def too_long(path: Path, max_line_bytes: int, action: str) -> DataError:
    """The error of a line that is too long."""
    given = f"'{path}' with a line of more than {max_line_bytes} bytes"
    return DataError(given, f"{max_line_bytes} bytes a line at most", action)


def parsed(lines: Iterable[bytes], path: Path, action: str) -> Iterator[Any]:
    """JSON values of lines of the file `path`, as `json_lines` reads them."""
    line = b""
    try:
        for line in lines:
            yield json.loads(line.decode())
    except (ValueError, EOFError, OSError, zlib.error, RecursionError) as error:
        torn = isinstance(error, ValueError) and not line.endswith(b"\n")
        if not torn:
            raise DataError(
                f"'{path}' with a line that is not JSON", "one JSON value a line", action
            ) from error


def end_torn_line(path: Path) -> None:
    """Cuts a torn last line off, so that what is appended starts on a line of its own."""
    if not path.is_file() or path.stat().st_size == 0:
        return
    with path.open("rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def append_lines(path: Path, values: Iterable[Any], options: StoreConfig = StoreConfig()) -> None:
    """Adds values to a JSON-lines file; they survive a loss of power once this returns.

    Raises:
        DataError: A value is longer than a line that would be read.
    """
    end_torn_line(path)
    is_new = not path.exists()
    with path.open("a") as file:
        for value in values:
            line = json.dumps(value) + "\n"  # ASCII: as many bytes
            if len(line) > options.max_line_bytes:
                raise too_long(path, options.max_line_bytes, "leave the value out")
            file.write(line)
            file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync(path.parent)


def sha256(path: Path) -> str:
    """Digest of a file, read a little at a time."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
