"""Folders beside a bundle in which it is made; those that a kill left behind are removed."""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

OWNER = "owner.lock"
"""Name of a file in each work folder that its maker keeps locked: a kill lets go of it."""


@contextlib.contextmanager
def work_folder(out: Path) -> Iterator[Path]:
    """A folder on the disk of `out`, gone afterwards.

    Args:
        out: Path of what is made there; its parent is made where it is missing.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    remove_left_behind(out)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=_prefix(out)) as work:
        # Locked before it has the name by which others know it.
        begun = Path(work, f"{OWNER}.new")
        with begun.open("x") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            begun.rename(begun.with_name(OWNER))
            yield Path(work)


def remove_left_behind(out: Path) -> None:
    """Removes work folders of `out` whose makers are gone, and nothing else.

    Only a plain folder of this user beside `out`, with a name and a file as `work_folder` makes
    them, which nobody keeps locked.
    """
    for folder in out.parent.iterdir():
        if folder.name.startswith(_prefix(out)) and not folder.is_symlink():
            with contextlib.suppress(OSError):  # no folder, not ours, or in use
                _remove_unless_in_use(folder)


def _prefix(out: Path) -> str:
    return f".{out.name}."


def _remove_unless_in_use(folder: Path) -> None:
    descriptor = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and folder.lstat().st_uid == os.getuid():
            shutil.rmtree(folder)
    finally:
        os.close(descriptor)
