"""Which relative paths are harmless on every file system."""

import re
import unicodedata
from collections.abc import Iterable

MAX_PATH_CHARACTERS = 240
"""Most characters of a path: Windows takes 259, the folder's own included."""
_ODD = re.compile(r"[\x00-\x1f\x7f\\:*?\"<>|]")


class PathRefused(Exception):
    """A path that a folder from elsewhere must not hold.

    Args:
        path: The refused path.
        expected: Description of what it should have been.
    """

    def __init__(self, path: str, expected: str) -> None:
        super().__init__(f"{path}: {expected}")
        self.path, self.expected = path, expected


def check_paths(paths: Iterable[str]) -> None:
    """Refuses paths that lead outside, or of which two meet on a case-insensitive disk.

    Raises:
        PathRefused: The first path that will not do.
    """
    spelling: dict[str, str] = {}
    seen: set[str] = set()
    for path in paths:
        _check(path)
        if path in seen:
            raise PathRefused(path, "each path once")
        seen.add(path)
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            prefix = "/".join(parts[:count])
            if spelling.setdefault(_folded(prefix), prefix) != prefix:
                raise PathRefused(path, "names that differ by more than case")


def _check(path: str) -> None:
    if path.startswith("/"):
        raise PathRefused(path, "a relative path")
    parts = path.split("/")
    if ".." in parts:
        raise PathRefused(path, "a path inside the folder")
    if _ODD.search(path) or any(part in ("", ".") or part != part.rstrip(" .") for part in parts):
        raise PathRefused(path, "plain names separated by /")
    if len(path) > MAX_PATH_CHARACTERS:
        raise PathRefused(path[:40] + "...", f"at most {MAX_PATH_CHARACTERS} characters")


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", path).casefold()
