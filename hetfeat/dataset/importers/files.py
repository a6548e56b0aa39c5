"""Reading files of unknown origin: gzip by content, and never more memory than a bound."""

import codecs
import gzip
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hetfeat.errors import DataError, RequestError


@dataclass(frozen=True)
class ReadOptions:
    """How much of a file of unknown origin is read.

    Attributes:
        chunk_bytes: Bytes read at once; 1 MB by default.
        bomb_ratio: Bytes that a compressed byte may become; 250 by default. Logs shrink to between
            a tenth and a hundredth; gzip could reach a thousandth.
        bomb_bytes: Decompressed bytes from which on the ratio is asked; 64 MB by default: a small
            file may repeat one line.
    """

    chunk_bytes: int = 2**20
    bomb_ratio: int = 250
    bomb_bytes: int = 2**26

    def is_bomb(self, size: int, compressed: int) -> bool:
        """Whether data grow out of all proportion when they are decompressed."""
        return size > max(self.bomb_bytes, self.bomb_ratio * compressed)


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
    unpacked, rest = b"", packed
    while _is_gzip(rest) and len(unpacked) < size:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            unpacked += member.decompress(rest, size - len(unpacked))
        except zlib.error:
            return unpacked or packed
        rest = member.unused_data.lstrip(b"\0")  # tapes and blocks are padded
    return unpacked


def read_lines(
    path: Path,
    skipped: Counter[str],
    line_bytes: int = 2**20,
    options: ReadOptions = ReadOptions(),
) -> Iterator[list[bytes]]:
    """Whole lines of a file that are not blank, a chunk at a time.

    Args:
        path: Path of a text file, which gzip may have packed.
        skipped: Counter of what is not read, added to here: overlong lines, and what follows
            damage.
        line_bytes: Longest line that is read; 1 MB by default: Ansor's have about a kilobyte.
        options: How much is read; as `ReadOptions` says by default.
    """
    rest = b""
    overlong = False
    for chunk in _chunks(path, skipped, options):
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


def read_whole(path: Path, options: ReadOptions = ReadOptions()) -> bytes:
    """All of a file, decompressed if it is gzip.

    Raises:
        DataError: It is damaged, cut off or a bomb.
    """
    damage: Counter[str] = Counter()
    content = b"".join(_chunks(path, damage, options))
    for what in damage:
        raise DataError(f"'{path}': {what}", "a whole file", "fetch it again")
    return content


def _chunks(path: Path, skipped: Counter[str], options: ReadOptions) -> Iterator[bytes]:
    try:
        with path.open("rb") as raw:
            compressed = _is_gzip(raw.read(2))
            raw.seek(0)
            size = os.fstat(raw.fileno()).st_size
            if compressed:
                chunks = _bounded(gzip.GzipFile(fileobj=raw), size, skipped, options)
            else:
                chunks = iter(lambda: raw.read(options.chunk_bytes), b"")
            for begin in chunks:
                yield begin.removeprefix(codecs.BOM_UTF8)
                yield from chunks
    except (OSError, EOFError, zlib.error):
        skipped["rest of a file that is damaged or cut off"] += 1


def _bounded(
    file: gzip.GzipFile, size: int, skipped: Counter[str], options: ReadOptions
) -> Iterator[bytes]:
    done, ratio = 0, options.bomb_ratio
    while chunk := file.read1(options.chunk_bytes):
        done += len(chunk)
        if options.is_bomb(done, size):
            skipped[f"rest of a file of more than {ratio} times its compressed size"] += 1
            return
        yield chunk


def _is_gzip(begin: bytes) -> bool:
    return begin[:2] == b"\x1f\x8b"
