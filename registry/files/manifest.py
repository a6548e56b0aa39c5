"""What a folder holds, file by file, so that a copy of it can be trusted or refused.

`manifest.json` lists the path, size and SHA-256 of every other file. Its own SHA-256 is kept
elsewhere (in the version's tags and in the ledger): who can change a file beside the manifest can
change the manifest, too.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hetfeat.durable import write_file
from hetfeat.errors import DataError
from registry.files.pickle_check import looks_like_pickle
from registry.files.safe_paths import PathRefused, check_paths

MANIFEST = "manifest.json"
FORMAT = 1
MAX_FILE_BYTES = 4 << 30
MAX_MANIFEST_BYTES = 16 << 20
"""Most bytes of a file and of a manifest: part of the format, the same for all who write or read
it."""

RESTORE = "do not use it: pull it again, or restore it from where it was made"


@dataclass(frozen=True)
class FileEntry:
    """One file of a manifest.

    Attributes:
        path: Path relative to the folder, with forward slashes.
        bytes: Size of the file in bytes.
        sha256: SHA-256 of the content, in hexadecimal.
    """

    path: str
    bytes: int
    sha256: str


def write_manifest(folder: Path) -> str:
    """Writes `manifest.json` for every other file of a folder.

    Returns:
        SHA-256 of the manifest's bytes; the same files give the same.

    Raises:
        DataError: The folder holds something that `check_manifest` would refuse.
    """
    entries = []
    for path in plain_files(folder):
        if path != MANIFEST:
            _refuse_pickle(folder / path)
            content = folder / path
            entries.append(FileEntry(path, content.stat().st_size, sha256_of(content)))
    _check_entries(entries, str(folder), MAX_FILE_BYTES)
    data = _encode(entries)
    write_file(folder / MANIFEST, data)
    return hashlib.sha256(data).hexdigest()


def check_manifest(
    folder: Path, expected_sha256: str | None = None, max_file_bytes: int = MAX_FILE_BYTES
) -> str:
    """Compares a folder with its manifest, byte for byte.

    Args:
        folder: Folder that holds `manifest.json` and nothing that it does not list.
        expected_sha256: SHA-256 of the manifest as recorded elsewhere; default None if it is not
            known.
        max_file_bytes: Most bytes of a file, default `MAX_FILE_BYTES`; a larger one is refused
            unread.

    Returns:
        SHA-256 of the manifest's bytes.

    Raises:
        DataError: A changed, missing, added or over-size file, a pickle, a symbolic link, a path
            that leads outside, names that differ by case alone, or another manifest.
    """
    found = set(plain_files(folder))
    if MANIFEST not in found:
        raise DataError(f"'{folder}'", f"a folder with a {MANIFEST}", RESTORE)
    data = (folder / MANIFEST).read_bytes()
    entries = parse_manifest(data, str(folder), expected_sha256, max_file_bytes)
    listed = {entry.path for entry in entries}
    if extra := sorted(found - listed - {MANIFEST}):
        raise DataError(
            f"'{folder}' with {_some(extra)}", f"only files that its {MANIFEST} lists", RESTORE
        )
    if missing := sorted(listed - found):
        raise DataError(
            f"'{folder}' without {_some(missing)}", f"every file of its {MANIFEST}", RESTORE
        )
    for entry in entries:
        _check_file(folder / entry.path, entry)
    return hashlib.sha256(data).hexdigest()


def parse_manifest(
    data: bytes,
    where: str,
    expected_sha256: str | None = None,
    max_file_bytes: int = MAX_FILE_BYTES,
) -> tuple[FileEntry, ...]:
    """The files that a manifest lists, each name and size found harmless.

    Args:
        data: Bytes of a `manifest.json`.
        where: Name of its origin, for an error.
        expected_sha256: SHA-256 of the manifest as recorded elsewhere, as in `check_manifest`;
            default None.
        max_file_bytes: Most bytes of a file, as in `check_manifest`; default `MAX_FILE_BYTES`.

    Raises:
        DataError: It is not the manifest expected, or lists something refused.
    """
    actual = hashlib.sha256(data).hexdigest()
    if expected_sha256 is not None and actual != expected_sha256:
        raise DataError(
            f"{MANIFEST} of '{where}' with SHA-256 {actual[:16]}...",
            f"{expected_sha256[:16]}..., as registered",
            RESTORE,
        )
    entries = tuple(_decode(data, where))
    _check_entries(entries, where, max_file_bytes)
    return entries


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def plain_files(folder: Path) -> Iterator[str]:
    """Relative paths of all files of a folder; a link or a device among them is refused."""
    if folder.is_symlink() or not folder.is_dir():
        raise DataError(f"'{folder}'", "a folder", "check the path")
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise DataError(
                f"'{relative}' in '{folder}', a link or a special file",
                "plain files and folders",
                "replace it by a copy of what it leads to",
            )
        if path.is_file():
            yield relative


def _encode(entries: Iterable[FileEntry]) -> bytes:
    files = [asdict(entry) for entry in sorted(entries, key=lambda entry: entry.path)]
    text = json.dumps({"format": FORMAT, "files": files}, sort_keys=True, separators=(",", ":"))
    return text.encode()


def _decode(data: bytes, where: str) -> Iterator[FileEntry]:
    content: Any = None
    try:
        content = json.loads(data)
        version = content["format"]
        entries = [FileEntry(**file) for file in content["files"]]
        sound = all(
            isinstance(e.path, str)
            and isinstance(e.sha256, str)
            and isinstance(e.bytes, int)
            and e.bytes >= 0
            for e in entries
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{MANIFEST} of '{where}', which cannot be read", "files with their digests", RESTORE
        ) from error
    if version != FORMAT or not sound:
        raise DataError(
            f"{MANIFEST} of '{where}' of format {version!r}", f"format {FORMAT}", "update hetfeat"
        )
    yield from entries


def _check_entries(entries: Iterable[FileEntry], where: str, max_file_bytes: int) -> None:
    entries = list(entries)
    try:
        check_paths([entry.path for entry in entries])
    except PathRefused as error:
        raise DataError(f"'{where}' listing {error.path!r}", error.expected, RESTORE) from error
    for entry in entries:
        if entry.bytes > max_file_bytes:
            raise DataError(
                f"'{entry.path}' of {entry.bytes} bytes in '{where}'",
                f"at most {max_file_bytes} bytes a file",
                "leave training data out of what is registered",
            )


def _check_file(path: Path, entry: FileEntry) -> None:
    size = path.stat().st_size
    if size != entry.bytes:
        raise DataError(f"'{path}' of {size} bytes", f"{entry.bytes}, as listed", RESTORE)
    _refuse_pickle(path)
    if sha256_of(path) != entry.sha256:
        raise DataError(f"'{path}' with changed content", "the bytes that were listed", RESTORE)


def _refuse_pickle(path: Path) -> None:
    if looks_like_pickle(path):
        raise DataError(
            f"'{path}', a pickle, which runs code when it is loaded",
            "weights as safetensors, .ubj or LightGBM text",
            "save the model with hetfeat",
        )


def _some(paths: list[str]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(f"'{path}'" for path in paths[:3]) + more
