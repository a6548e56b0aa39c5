"""The file of a pack: a tar archive packed by xz, the manifest first; equal packs, equal bytes.

    pack.json        the manifest
    pack.json.sig    its signature, if a key is configured
    NAME             the programs' files, in the order of their names

Packed together the files shrink to half of what each would alone.
"""

import base64
import contextlib
import hashlib
import io
import lzma
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hetfeat.deploy import runtime
from hetfeat.deploy.runtime import BundleError
from hetfeat.deploy.signing import signing_key
from hetfeat.durable import write_file
from hetfeat.errors import DataError
from hetfeat.packs.manifest import Manifest
from hetfeat.parsing import decode

MANIFEST = "pack.json"
SIGNATURE = "pack.json.sig"
_AGAIN = "copy it again, or build it anew"


@dataclass(frozen=True)
class Pack:
    """A pack whose files lie in a folder, each as its digest says.

    Attributes:
        manifest: Manifest of the pack.
        digest: SHA-256 of the manifest, which binds every file.
        folder: Folder of the files.
    """

    manifest: Manifest
    digest: str
    folder: Path


@dataclass(frozen=True)
class ArchiveLimits:
    """What is too large to be read.

    Attributes:
        manifest_bytes: Longest manifest, default 256 MB: some ten thousand programs.
        file_bytes: Longest of the other files, default 256 MB.
        all_bytes: Most bytes of all files together, default 16 GB.
    """

    manifest_bytes: int = 2**28
    file_bytes: int = 2**28
    all_bytes: int = 2**34


def write_pack(path: Path, manifest: Manifest, folder: Path) -> str:
    """Writes a pack, signed if a key is configured; returns the manifest's digest.

    Args:
        path: Path of the pack, which is replaced as a whole.
        manifest: Manifest of the pack.
        folder: Folder of the files that the manifest names.

    Raises:
        RequestError: As `signing.signing_key`.
    """
    data = manifest.model_dump_json().encode()
    key = signing_key()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", format=tarfile.USTAR_FORMAT) as archive:
        _add(archive, MANIFEST, data)
        if key:
            _add(archive, SIGNATURE, base64.b64encode(key.sign(data)))
        for name in sorted(manifest.files):
            _add(archive, name, (folder / name).read_bytes())
    write_file(path, packed.getvalue())
    return hashlib.sha256(data).hexdigest()


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """Adds a file of which nothing but its name and bytes is kept."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o444
    archive.addfile(member, io.BytesIO(data))


def open_pack(path: Path, folder: Path, limits: ArchiveLimits = ArchiveLimits()) -> Pack:
    """A pack whose files are put into a folder, each only if it is what the manifest says.

    Args:
        path: Path of the pack.
        folder: Empty folder, which nobody else writes to.
        limits: Sizes that are refused; those of `ArchiveLimits` by default.

    Raises:
        DataError: It is no pack, damaged, changed, too large, or not signed by the configured key.
    """
    with _opened(path) as archive:
        data = _content(path, archive, archive.next(), MANIFEST, limits.manifest_bytes)
        member = archive.next()
        signature = None
        if member is not None and member.name == SIGNATURE:
            signature = _content(path, archive, member, SIGNATURE, 1000)
            member = archive.next()
        _check_signature(path, data, signature)
        what = f"the manifest of pack '{path}'"
        manifest = decode(data, Manifest, what=what, action=_AGAIN, max_bytes=limits.manifest_bytes)
        room = limits.all_bytes
        for name in sorted(manifest.files):
            content = _content(path, archive, member, name, min(room, limits.file_bytes))
            if hashlib.sha256(content).hexdigest() != manifest.files[name]:
                raise _damaged(path, f"whose file {name} has changed")
            (folder / name).write_bytes(content)
            room -= len(content)
            member = archive.next()
        if member is not None:
            raise _damaged(path, "with a file that was added")
    return Pack(manifest, hashlib.sha256(data).hexdigest(), folder)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"pack '{path}'", "a pack", f"check it ({error.strerror})") from error
    with file:
        try:
            with _stream(file) as archive:
                yield archive
        except (tarfile.TarError, lzma.LZMAError, EOFError, ValueError) as error:
            raise _damaged(path, "that is cut off or no pack") from error


def _stream(file: IO[bytes]) -> tarfile.TarFile:
    """The archive, read once from its begin to its end."""
    return tarfile.open(fileobj=file, mode="r|xz")


def _content(
    path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo | None, name: str, most: int
) -> bytes:
    """The bytes of the member that must come now."""
    if member is None or member.name != name or not member.isreg():
        raise _damaged(path, f"without {name} where it should be")
    if member.size > most:
        raise _damaged(path, f"whose {name} has {member.size} bytes, over {most}")
    file = archive.extractfile(member)
    content = file.read() if file else b""
    if len(content) != member.size:
        raise _damaged(path, f"whose {name} is cut off")
    return content


def _check_signature(path: Path, manifest: bytes, signature: bytes | None) -> None:
    """Refuses what the configured public key has not signed; without one everything passes."""
    try:
        key = runtime.public_key()
    except BundleError as error:
        raise DataError(*error.parts) from error
    if key is None:
        return
    from cryptography.exceptions import InvalidSignature

    by = f"a signature by the key of {os.environ[runtime.PUBLIC_KEY]}"
    if signature is None:
        raise DataError(f"pack '{path}', unsigned", by, "have it signed")
    try:
        key.verify(base64.b64decode(signature, validate=True), manifest)
    except (InvalidSignature, ValueError) as error:
        raise DataError(
            f"pack '{path}' with another signature",
            by,
            "do not use it: it was changed, or signed by someone else",
        ) from error


def _damaged(path: Path, how: str) -> DataError:
    return DataError(f"pack '{path}' {how}", "what `hetfeat pack build` wrote", _AGAIN)
