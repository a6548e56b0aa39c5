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
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from hetfeat.durable import sync, sync_tree
from hetfeat.errors import DataError
from hetfeat.models.native import check_native, trust
from hetfeat.parsing import Count, Digest, FileName, Schema, decode

FORMAT_VERSION = 1
HEAD = "model.json"
_ACTION = "pull or train the model again"
SeenCounts = dict[str, dict[str, Count]]


class CalibrationCurve(Schema):
    """A calibration."""

    score: Annotated[list[float], Field(min_length=1)]
    y: list[float]

    @model_validator(mode="after")
    def _is_a_curve(self) -> Self:
        if len(self.score) != len(self.y):
            raise ValueError("a knot without an estimate")
        return self


class ModelHead(Schema):
    """`model.json`, but for what its engine alone knows."""

    format: int
    model: str
    files: dict[FileName, Digest]


class Contents(ModelHead):
    """All of `model.json`; the last two keys are not in the first models' folders."""

    columns: dict[str, list[str]]
    parameters: dict[str, bool | int | float | str]
    calibration: CalibrationCurve
    seen: SeenCounts
    seen_anchors: SeenCounts
    with_stores: bool | None
    valid_pca: Annotated[float, Field(ge=0, le=1)] | None = None
    chance_error: Annotated[float, Field(gt=0, le=1)] | None = None


def write_folder(folder: Path, head: dict[str, Any], write: Callable[[Path], None]) -> None:
    """Makes a model folder in one step: it is complete or absent.

    Args:
        folder: Folder of the model, absent or empty.
        head: Values for the head file, ready for JSON; they must name the `model`.
        write: Function called with a folder to write the model's other files into.

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
        for digest in files.values():
            trust(digest)
        text = json.dumps({"format": FORMAT_VERSION, **head, "files": files}, indent=1)
        (draft / HEAD).write_text(text + "\n")
        draft.chmod(0o755)  # mkdtemp's own is for one user
        sync_tree(draft)
        os.replace(draft, folder)
        sync(folder.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def read_head(folder: Path, max_bytes: int = 64 << 20) -> dict[str, Any]:
    """The contents of `model.json`, once every file it lists has the digest it states.

    Args:
        folder: Folder of the model.
        max_bytes: Longest `model.json`; 64 MB by default: it has a line for each device, task and
            column that the model knows.

    Raises:
        DataError: Not a model folder, a newer format, or a file that is missing or changed.
    """
    try:
        data = (folder / HEAD).read_bytes()
    except OSError as error:
        raise _not_a_model(folder) from error
    what = f"{HEAD} of model '{folder}'"
    stated = decode(data, ModelHead, what=what, action=_ACTION, max_bytes=max_bytes)
    if stated.format != FORMAT_VERSION:
        raise DataError(
            f"model '{folder}' of format {stated.format}",
            f"format {FORMAT_VERSION}",
            "update hetfeat, or train it again",
        )
    head = decode(data, Contents, what=what, action=_ACTION, max_bytes=max_bytes)
    for name, digest in head.files.items():
        path = folder / name
        if path.is_symlink() or not path.is_file() or _sha256(path) != digest:
            raise DataError(
                f"model '{folder}' whose file {name} is missing or changed",
                "the bytes that were saved",
                "pull or train the model again",
            )
        check_native(path, digest)
    return head.model_dump(exclude_unset=True)


def _not_a_model(folder: Path) -> DataError:
    return DataError(
        f"'{folder}'", f"a cost model: a folder with a readable {HEAD}", "pull or train one"
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
