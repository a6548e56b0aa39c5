"""Lends a version to devices without MLflow."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hetfeat.errors import RequestError
from registry.cli import app
from registry.cli.options import REQUIRED, argument, option, unrecorded_option
from registry.cli.params import MODEL_VERSION

MAX_EXPIRES_S = 7 * 24 * 3600
"""Most seconds for which URLs may hold: S3 signs no longer ones."""


@dataclass(frozen=True)
class ShareOptions:
    """Options of `hetfeat share`."""

    model: str = argument(metavar="NAME-or-URI", type=MODEL_VERSION)
    bucket: str = option(REQUIRED, "Of an S3 server; it must exist.")
    prefix: str = option("hetfeat", "Before the version's own folder in the bucket.")
    expires: int = option(
        3600, "Seconds for which the URLs hold.", type=click.IntRange(1, MAX_EXPIRES_S)
    )
    out: Path = option(REQUIRED, "File for the URLs.")
    unrecorded: bool = unrecorded_option()


@app.command(
    "share",
    ShareOptions,
    example="hetfeat share costmodel.cpu-x86 --bucket models --out shared.json",
    short_help="Put a version in S3, for devices without MLflow.",
)
def command(options: ShareOptions) -> Mapping[str, Any]:
    """Uploads a verified version and writes a file from which `hetfeat fetch` brings it.

    A plain name means its version in production. Who has the file can fetch the version.
    """
    from registry.files import s3_upload
    from registry.files.pull import pull
    from registry.models.version import SIGNATURE_TAG

    model, bucket, out = options.model, options.bucket, options.out
    if out.is_dir():
        raise RequestError(
            f"--out '{out}', a folder", "a file for the URLs", "choose another --out"
        )
    plain = "/" not in model and "@" not in model
    pulled = pull(model, "production" if plain else None, unrecorded=options.unrecorded)
    client = s3_upload.connect()
    # A folder for each digest: what was shared before keeps working.
    where = f"{options.prefix.strip('/')}/{pulled.manifest_sha256}".lstrip("/")
    digest = s3_upload.upload_folder(pulled.folder, bucket, where, client)
    request = s3_upload.presign(pulled.version.uri, digest, bucket, where, options.expires, client)
    if signature := pulled.version.tags.get(SIGNATURE_TAG):
        request["signature"] = signature
    _write_private(out, json.dumps(request, indent=1))
    return {
        "uri": pulled.version.uri,
        "files": len(request["urls"]),
        "manifest_sha256": digest,
        "expires_at": request["expires_at"],
        "out": out,
    }


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Made with mode 0600.
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)
