"""Bounds the copies of versions on this machine: the ones used longest ago go first."""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from registry.files import cache
from registry.files.removal import remove_child


@dataclass(frozen=True)
class PrunedCache:
    """What became of the cache.

    Attributes:
        removed: Copies and leftovers of interrupted pulls that went, in number.
        freed_bytes: Bytes that the removed files took.
        kept: Copies that are left, in number.
        kept_bytes: Bytes that the copies that are left take.
    """

    removed: int
    freed_bytes: int
    kept: int
    kept_bytes: int


def prune(max_bytes: float, in_use_s: float = 3600.0) -> PrunedCache:
    """Removes leftovers of interrupted pulls, then copies until the rest fits.

    A copy that is gone is fetched again when it is next asked for; only while the registry does
    not answer it is missed.

    Args:
        max_bytes: Most bytes that the copies may take together.
        in_use_s: Age in seconds of the last use below which a copy stays, default 3,600: another
            process may be reading it.
    """
    used = _last_used(cache.models_folder())
    old = {path for path, at in used.items() if time.time() - at > in_use_s}
    gone = [path for path in old if path.name.startswith(cache.DRAFT)]
    copies = [path for path in used if not path.name.startswith(cache.DRAFT)]
    sizes = {path: _bytes(path) for path in (*gone, *copies)}
    left = sum(sizes[path] for path in copies)
    for path in sorted(copies, key=used.__getitem__):
        if left > max_bytes and path in old:
            gone.append(path)
            left -= sizes[path]
    gone = [path for path in gone if remove_child(path.parent, path)]
    copies = [path for path in copies if path not in gone]
    return PrunedCache(
        removed=len(gone),
        freed_bytes=sum(sizes[path] for path in gone),
        kept=len(copies),
        kept_bytes=sum(sizes[path] for path in copies),
    )


def _last_used(folder: Path) -> dict[Path, float]:
    """When each folder in it was last used; what other processes remove meanwhile is left out."""
    used = {}
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir() and not path.is_symlink():
                used[path] = path.stat().st_mtime
    return used


def _bytes(folder: Path) -> int:
    taken = 0
    with contextlib.suppress(FileNotFoundError):
        for path in folder.rglob("*"):
            taken += 0 if path.is_dir() else path.lstat().st_size
    return taken
