"""Tells pickles from other files without loading them."""

import pickletools
import zipfile
from pathlib import Path

EXTENSIONS = frozenset(
    {".pkl", ".pickle", ".p", ".joblib", ".dill", ".cloudpickle", ".pt", ".pth", ".ckpt"}
)
_PROTOCOLS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def looks_like_pickle(path: Path) -> bool:
    """Whether a file is a pickle by its name, by its first bytes, or inside a zip archive."""
    if path.suffix.lower() in EXTENSIONS:
        return True
    with path.open("rb") as file:
        head = file.read(4096)
    return _starts_like_pickle(head) or (head[:2] == b"PK" and _holds_pickle(path))


def _starts_like_pickle(head: bytes, enough_opcodes: int = 3) -> bool:
    """Reads opcodes without running them: a safetensors file may begin with the same two bytes."""
    if not head.startswith(_PROTOCOLS):
        return False
    read = 0
    try:
        for _ in pickletools.genops(head):
            read += 1
            if read >= enough_opcodes:
                return True
    except (ValueError, UnicodeDecodeError, IndexError):
        return False
    return read > 1


def _holds_pickle(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return False
    return any(Path(name).suffix.lower() in EXTENSIONS for name in names)
