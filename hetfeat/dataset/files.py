"""Small files of a store: JSON lines that may end in a torn one, whole files replaced at once."""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hetfeat.durable import sync
from hetfeat.errors import DataError

RESTORE = "restore the file from where the store was copied"


def json_lines(path: Path) -> Iterator[Any]:
    """Lines of a JSON-lines file; a torn last line, the mark of an interrupt, is left out.

    Raises:
        DataError: A whole line is not JSON, or the file is damaged.
    """
    if not path.is_file():
        return
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        yield from parsed(file, path)


def parsed(lines: Iterable[str], path: Path) -> Iterator[Any]:
    """JSON values of lines of the file `path`, as `json_lines` reads them."""
    line = ""
    try:
        for line in lines:
            yield json.loads(line)
    except (ValueError, EOFError, OSError, zlib.error, RecursionError) as error:
        torn = isinstance(error, json.JSONDecodeError) and not line.endswith("\n")
        if not torn:
            raise DataError(
                f"'{path}' with a line that is not JSON", "one JSON value a line", RESTORE
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


def append_lines(path: Path, values: Iterable[Any]) -> None:
    """Adds values to a JSON-lines file; they survive a loss of power once this returns."""
    end_torn_line(path)
    is_new = not path.exists()
    with path.open("a") as file:
        for value in values:
            file.write(json.dumps(value) + "\n")
            file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync(path.parent)


def sha256(path: Path) -> str:
    """Digest of a file, read a little at a time."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
