"""Cost models that come with the package, one for each family of the packaged records.

`make packaged-models` trains them of those records, each in a folder that its family names.
"""

import json
from pathlib import Path

_HERE = Path(__file__).resolve().parent
RECORDS = "records.json"
"""File with the digest of the records that the models have learnt from."""


def packaged_model(family: str) -> Path | None:
    """The folder of a family's packaged model; None where there is none."""
    folder = _HERE / family
    return folder if folder.is_dir() else None


def packaged_records_digest() -> str:
    """The digest of the record store that the packaged models have learnt from."""
    digest: str = json.loads((_HERE / RECORDS).read_text())["sha256"]
    return digest
