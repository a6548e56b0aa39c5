"""Brings a shared version to a device without MLflow."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.cli import app
from registry.cli.options import REQUIRED, argument, option


@dataclass(frozen=True)
class FetchOptions:
    """Options of `hetfeat fetch`."""

    file: Path = argument()
    out: Path = option(REQUIRED, "A new folder.")


@app.command(
    "fetch",
    FetchOptions,
    example="hetfeat fetch shared.json --out model",
    short_help="Bring a shared version here, without MLflow.",
)
def command(options: FetchOptions) -> Mapping[str, Any]:
    """Fetches what a file of `hetfeat share` names, each file checked against its digest."""
    from registry.files.presigned_fetch import fetch_presigned, read_request

    request = read_request(options.file)
    fetch_presigned(request, options.out)
    return {"uri": request.model, "folder": options.out, "manifest_sha256": request.manifest_sha256}
