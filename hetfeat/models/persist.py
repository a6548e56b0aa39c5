"""A model's folder: `model.json` and the files it lists, each with its digest.

Nothing in it is executable and nothing is unpickled; digests are checked before anything is
built from the files.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hetfeat.durable import sync, sync_tree
from hetfeat.errors import DataError

FORMAT_VERSION = 1
HEAD = "model.json"
_HEAD_KEYS = {"format", "model", "files"}


def write_folder(folder: Path, head: dict[str, Any], write: Callable[[Path], None]) -> None:
    """Makes a model folder in one step: it is complete or absent.

    Args:
        folder: Absent or empty.
        head: JSON-ready; must name its `model`.
        write: Called with a folder to write the model's other files into.

    Raises:
        DataError: The folder holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"'{folder}' to save a model in", "an empty folder", "choose another")
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        write(draft)
        files = {path.name: _sha256(path) for path in sorted(draft.iterdir())}
        text = json.dumps({"format": FORMAT_VERSION, **head, "files": files}, indent=1)
        (draft / HEAD).write_text(text + "\n")
        draft.chmod(0o755)  # mkdtemp's own is for one user
        sync_tree(draft)
        os.replace(draft, folder)
        sync(folder.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def read_head(folder: Path) -> dict[str, Any]:
    """The contents of `model.json`, once every file it lists has the digest it states.

    Raises:
        DataError: Not a model folder, a newer format, or a file that is missing or changed.
    """
    try:
        head = json.loads((folder / HEAD).read_text())
    except (OSError, ValueError) as error:
        raise _not_a_model(folder) from error
    if not isinstance(head, dict) or not set(head) >= _HEAD_KEYS:
        raise _not_a_model(folder)
    if head["format"] != FORMAT_VERSION:
        raise DataError(
            f"model '{folder}' of format {head['format']}",
            f"format {FORMAT_VERSION}",
            "update hetfeat, or train it again",
        )
    for name, digest in head["files"].items():
        path = folder / name
        if path.parent != folder or not path.is_file() or _sha256(path) != digest:
            raise DataError(
                f"model '{folder}' whose file {name} is missing or changed",
                "the bytes that were saved",
                "pull or train the model again",
            )
    return head


def _not_a_model(folder: Path) -> DataError:
    return DataError(
        f"'{folder}'", f"a cost model: a folder with a readable {HEAD}", "pull or train one"
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
