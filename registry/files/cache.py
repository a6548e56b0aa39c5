"""Verified copies of versions on this machine, by the digest of their manifest."""

import contextlib
import errno
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from hetfeat.devices.probe import home
from hetfeat.durable import write_file
from hetfeat.errors import DataError, HetfeatError, WorkFailed
from hetfeat.parsing import Digest, decode, parse
from registry.files.manifest import check_manifest
from registry.files.removal import remove_child

log = logging.getLogger(__name__)

T = TypeVar("T")

DRAFT = ".draft-"
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def models_folder() -> Path:
    """Where the verified copies are, one folder for each digest."""
    return home() / "models"


def find(manifest_sha256: str) -> Path | None:
    """The copy of a digest, checked again; a damaged one is removed.

    Raises:
        DataError: It is no digest, or the copy is a link.
    """
    folder = _place(manifest_sha256)
    try:
        if not folder.is_dir():
            return None
        check_manifest(folder, manifest_sha256)
    except OSError:  # another user's, who lets nobody read it
        return None
    except DataError:
        remove_child(models_folder(), folder)
        return None
    with contextlib.suppress(OSError):  # of another user, or read-only
        os.utime(folder)  # when it was last used, for `hetfeat cache prune`
    return folder


@contextlib.contextmanager
def draft() -> Iterator[Path]:
    """An empty folder on the disk of the cache, gone afterwards unless `keep` took it.

    Raises:
        WorkFailed: The disk is full or read only.
    """
    parent = models_folder()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=DRAFT, dir=parent))
    except OSError as error:
        raise _unusable(parent, error.strerror or str(error)) from error
    try:
        yield folder
    except HetfeatError:
        raise
    except Exception as error:
        if why := _trouble_of_the_disk(error):
            raise _unusable(parent, why) from error
        raise
    finally:
        remove_child(parent, folder)


def keep(folder: Path, manifest_sha256: str) -> Path:
    """Makes a verified draft the copy of its digest.

    Raises:
        DataError: Something else has the place.
    """
    target = _place(manifest_sha256)
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        check_manifest(target, manifest_sha256)  # another process was first with the same bytes
    return target


def remember(question: tuple[str, ...], answer: Mapping[str, Any]) -> None:
    """Keeps what a name meant, for when the registry cannot be reached; a full disk does not."""
    path = _answer_path(question)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(answer).encode())
    except OSError as error:
        log.warning(
            "what '%s' means is not kept for when the registry does not answer: '%s' (%s)",
            *(question[1], path.parent, error.strerror),
        )


def recall(question: tuple[str, ...], kind: type[T]) -> T | None:
    """What a name meant when it was last asked for; None where nothing sound was kept."""
    try:
        text = _answer_path(question).read_bytes()
        return decode(text, kind, what="an answer of the registry", action="ask it again")
    except (OSError, DataError):
        return None


def _answer_path(question: tuple[str, ...]) -> Path:
    digest = hashlib.sha256("\n".join(question).encode()).hexdigest()
    return home() / "names" / f"{digest[:32]}.json"


def _place(manifest_sha256: str) -> Path:
    action = "do not use the version; `hetfeat doctor` lists what was changed"
    return models_folder() / parse(manifest_sha256, Digest, what="a digest", action=action)


def _trouble_of_the_disk(error: Exception) -> str | None:
    """What a full or read-only disk says; MLflow hands on the text of the error alone."""
    for code in _OF_THE_DISK:
        if getattr(error, "errno", None) == code or f"[Errno {code}]" in str(error):
            return os.strerror(code)
    return None


def _unusable(folder: Path, why: str) -> WorkFailed:
    return WorkFailed(
        f"the folder of models '{folder}' ({why})",
        "a folder that can be written, with room for the version",
        "set HETFEAT_HOME to one, or make room with `hetfeat cache prune`",
    )
