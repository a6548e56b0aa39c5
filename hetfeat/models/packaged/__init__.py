"""Cost models that come with the package, one for each family of the packaged records.

`make packaged-models` trains them of those records, each in a folder that its family names.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from hetfeat.models.persist import HEAD

_HERE = Path(__file__).resolve().parent
RECORDS = "records.json"
"""File with the digest of the records that each model has learnt from, by family."""
PREFIX = "packaged:"


@dataclass(frozen=True)
class PackagedModel:
    """A cost model that comes with the package.

    Attributes:
        name: `PREFIX` and the first digits of the SHA-256 of its `model.json`.
        folder: Folder of the model.
        dataset_digest: Digest of its training records.
    """

    name: str
    folder: Path
    dataset_digest: str


def packaged_model(family: str, digits: int = 16) -> PackagedModel | None:
    """The packaged model of a family of devices; None where there is none.

    Args:
        family: Family of the device, such as `cpu-x86`.
        digits: Number of digits in its name, default 16.
    """
    folder = _HERE / family
    if not folder.is_dir():
        return None
    digest = hashlib.sha256((folder / HEAD).read_bytes()).hexdigest()
    learnt_from = json.loads((_HERE / RECORDS).read_text())[family]
    return PackagedModel(PREFIX + digest[:digits], folder, learnt_from)
