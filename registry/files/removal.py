"""Removes folders of ours, and nothing else, whatever a name from elsewhere says."""

import shutil
from pathlib import Path

from hetfeat.errors import DataError


def remove_child(parent: Path, child: Path) -> bool:
    """Removes a folder with all that it holds.

    Args:
        parent: Folder of ours.
        child: Folder directly in `parent`.

    Returns:
        Whether it is gone; False where that is not allowed, as on a disk that is read only.

    Raises:
        DataError: It lies elsewhere, or is a link: nothing is removed.
    """
    if child.parent != parent or child.name in ("", "..") or child.is_symlink():
        raise DataError(
            f"'{child}', which is not removed",
            f"a folder directly in '{parent}', and no link",
            "look at it, and remove it yourself",
        )
    shutil.rmtree(child, ignore_errors=True)
    return not child.exists()
