"""What was acknowledged survives a kill and a loss of power: files and folders, published whole.

A rename orders nothing by itself: after a loss of power a file may have its new name and no
bytes. So the bytes are flushed before the rename, and the folder that holds the name after it.
"""

import ctypes
import errno
import os
import secrets
import shutil
import tempfile
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_OFFERED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}


def write_file(path: Path, data: bytes) -> None:
    """Replaces a file as a whole; a reader sees the old bytes or the new.

    Args:
        path: Path of the file; its folder exists.
        data: Bytes of the whole file.

    Raises:
        OSError: The disk is full or the folder cannot be written; the old file is as it was.
    """
    draft = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync(path.parent)


def publish_folder(draft: Path, target: Path) -> None:
    """Makes a draft the folder of a name, in one step where the file system offers one.

    What had the name before is removed afterwards. Killed in between, the name leads to the old
    folder or to the new one; on a file system without an exchange (some network shares) it may
    lead to none for a moment.

    Args:
        draft: Folder on the disk of `target`; gone afterwards.
        target: Path that the folder gets: absent, or a folder that is replaced.
    """
    sync_tree(draft)
    if not target.exists():
        draft.rename(target)
    elif _exchanged(draft, target):
        _remove(draft)
    else:
        beside = Path(tempfile.mkdtemp(prefix=f".{target.name[:100]}.", dir=target.parent))
        target.rename(beside / "replaced")
        draft.rename(target)
        shutil.rmtree(beside)
    sync(target.parent)


def _remove(replaced: Path) -> None:
    """Removes a folder, or the link that had its name, and not what the link leads to."""
    if replaced.is_symlink():
        replaced.unlink()
    else:
        shutil.rmtree(replaced)


def sync_tree(folder: Path) -> None:
    """Flushes every file and folder below a folder, and the folder itself, to the disk."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if not path.is_symlink():
                sync(path)
        sync(Path(place))


def sync(path: Path) -> None:
    """Flushes a file's bytes, or a folder's names, to the disk.

    Raises:
        OSError: The disk did not take them. A folder of a file system that cannot flush folders
            is passed over.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise
    finally:
        os.close(descriptor)


def _exchanged(one: Path, other: Path) -> bool:
    """Whether two folders have changed names in one step; False where that is not offered."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    status = rename(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_RENAME_EXCHANGE)
    )
    code = ctypes.get_errno()
    if status and code not in _NOT_OFFERED:
        raise OSError(code, os.strerror(code), str(other))
    return bool(status == 0)
