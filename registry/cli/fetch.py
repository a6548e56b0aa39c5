"""Brings a shared version to a device without MLflow."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from registry.cli import app


@app.command("fetch", short_help="Bring a shared version here, without MLflow.")
@app.argument("file", type=click.Path(path_type=Path))
@app.option("--out", required=True, type=click.Path(path_type=Path), help="A new folder.")
def command(file: Path, out: Path) -> Mapping[str, Any]:
    """Fetches what a file of `hetfeat share` names, each file checked against its digest."""
    from registry.files.presigned_fetch import fetch_presigned, read_request

    request = read_request(file)
    fetch_presigned(request, out)
    return {"uri": request.model, "folder": out, "manifest_sha256": request.manifest_sha256}
