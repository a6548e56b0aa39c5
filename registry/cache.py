"""Verified copies of versions on this machine, by the digest of their manifest."""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hetfeat.devices.probe import home
from hetfeat.errors import DataError
from registry.manifest import check_manifest

DRAFT = ".draft-"


def models_folder() -> Path:
    """Where the verified copies are, one folder for each digest."""
    return home() / "models"


def find(manifest_sha256: str) -> Path | None:
    """The copy of a digest, checked again; a damaged one is removed."""
    folder = models_folder() / manifest_sha256
    if not folder.is_dir():
        return None
    try:
        check_manifest(folder, manifest_sha256)
    except DataError:
        shutil.rmtree(folder, ignore_errors=True)
        return None
    with contextlib.suppress(OSError):  # of another user, or read-only
        os.utime(folder)  # when it was last used, for `hetfeat cache prune`
    return folder


@contextlib.contextmanager
def draft() -> Iterator[Path]:
    """An empty folder on the disk of the cache, gone afterwards unless `keep` took it."""
    models_folder().mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=DRAFT, dir=models_folder()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep(folder: Path, manifest_sha256: str) -> Path:
    """Makes a verified draft the copy of its digest."""
    target = models_folder() / manifest_sha256
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():  # otherwise another process was first with the same bytes
            raise
    return target


def remember(question: tuple[str, ...], answer: Mapping[str, Any]) -> None:
    """Keeps what a name meant, for when the registry cannot be reached."""
    path = _answer_path(question)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(answer, file)
    Path(file.name).replace(path)


def recall(question: tuple[str, ...]) -> dict[str, Any] | None:
    """What a name meant when it was last asked for."""
    try:
        answer = json.loads(_answer_path(question).read_text())
    except (OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None


def _answer_path(question: tuple[str, ...]) -> Path:
    digest = hashlib.sha256("\n".join(question).encode()).hexdigest()
    return home() / "names" / f"{digest[:32]}.json"
