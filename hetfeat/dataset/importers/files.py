"""Reading files of unknown origin: gzip by content, and never more memory than a bound."""

import codecs
import gzip
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from hetfeat.errors import DataError, RequestError

CHUNK_BYTES = 2**20
LINE_BYTES = 2**20
"""Longest line that is read, unless a format asks for more; Ansor's have about a kilobyte."""
BOMB_RATIO = 250
"""Logs shrink to between a tenth and a hundredth; gzip could reach a thousandth."""
BOMB_BYTES = 2**26
"""Below this much decompressed, the ratio is not asked: a small file may repeat one line."""


def walk(paths: Iterable[Path]) -> Iterator[Path]:
    """The files given and those in the folders given, always in the same order.

    Raises:
        RequestError: There is nothing at a path.
    """
    for path in paths:
        if path.is_dir():
            for folder, subfolders, names in os.walk(path):
                subfolders.sort()
                yield from (Path(folder, name) for name in sorted(names))
        elif path.is_file():
            yield path
        else:
            raise RequestError(f"'{path}'", "a file or a folder of records", "correct the path")


def head(path: Path, size: int = 2**16) -> bytes:
    """The first bytes of a file, decompressed if it is gzip.

    Raises:
        DataError: It cannot be opened.
    """
    try:
        with path.open("rb") as file:
            begin = file.read(size)
    except OSError as error:
        raise DataError(f"'{path}'", "a readable file", f"check it ({error.strerror})") from error
    return (_unzipped(begin, size) if _is_gzip(begin) else begin).removeprefix(codecs.BOM_UTF8)


def _unzipped(packed: bytes, size: int) -> bytes:
    """The first bytes of gzip, whose members follow one another; what is damaged, as it is."""
    found, rest = b"", packed
    while _is_gzip(rest) and len(found) < size:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            found += member.decompress(rest, size - len(found))
        except zlib.error:
            return found or packed
        rest = member.unused_data.lstrip(b"\0")  # tapes and blocks are padded
    return found


def read_lines(
    path: Path, skipped: Counter[str], line_bytes: int = LINE_BYTES
) -> Iterator[list[bytes]]:
    """Whole lines of a file that are not blank, a chunk at a time.

    Args:
        path: Path of a text file, which gzip may have packed.
        skipped: Counter of what is not read, added to here: overlong lines, and what follows
            damage.
        line_bytes: Longest line that is read, in bytes; `LINE_BYTES` by default.
    """
    rest = b""
    overlong = False
    for chunk in _chunks(path, skipped):
        _, newline, others = chunk.partition(b"\n")
        if overlong and not newline:
            continue
        if overlong:
            rest, chunk, overlong = b"", others, False
        *lines, rest = (rest + chunk).split(b"\n")
        fitting = [line for line in lines if len(line) <= line_bytes]
        yield [line for line in fitting if line and not line.isspace()]
        too_long = len(lines) - len(fitting)
        if len(rest) > line_bytes:
            rest, overlong, too_long = b"", True, too_long + 1
        if too_long:
            skipped[f"line longer than {line_bytes} bytes"] += too_long
    if rest.strip() and not overlong:
        yield [rest]


def read_whole(path: Path) -> bytes:
    """All of a file, decompressed if it is gzip.

    Raises:
        DataError: It is damaged, cut off or a bomb.
    """
    damage: Counter[str] = Counter()
    content = b"".join(_chunks(path, damage))
    for what in damage:
        raise DataError(f"'{path}': {what}", "a whole file", "fetch it again")
    return content


def is_bomb(size: int, compressed: int) -> bool:
    """Whether data grow out of all proportion when they are decompressed."""
    return size > max(BOMB_BYTES, BOMB_RATIO * compressed)


def _chunks(path: Path, skipped: Counter[str]) -> Iterator[bytes]:
    try:
        with path.open("rb") as raw:
            compressed = _is_gzip(raw.read(2))
            raw.seek(0)
            size = os.fstat(raw.fileno()).st_size
            if compressed:
                chunks = _bounded(gzip.GzipFile(fileobj=raw), size, skipped)
            else:
                chunks = iter(lambda: raw.read(CHUNK_BYTES), b"")
            for begin in chunks:
                yield begin.removeprefix(codecs.BOM_UTF8)
                yield from chunks
    except (OSError, EOFError, zlib.error):
        skipped["rest of a file that is damaged or cut off"] += 1


def _bounded(file: gzip.GzipFile, size: int, skipped: Counter[str]) -> Iterator[bytes]:
    done = 0
    while chunk := file.read1(CHUNK_BYTES):
        done += len(chunk)
        if is_bomb(done, size):
            skipped[f"rest of a file of more than {BOMB_RATIO} times its compressed size"] += 1
            return
        yield chunk


def _is_gzip(begin: bytes) -> bool:
    return begin[:2] == b"\x1f\x8b"
