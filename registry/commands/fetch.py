"""Brings a shared version to a device without MLflow."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from registry.commands import _cli


@_cli.command("fetch", short_help="Bring a shared version here, without MLflow.")
@_cli.argument("file", type=click.Path(path_type=Path))
@_cli.option("--out", required=True, type=click.Path(path_type=Path), help="A new folder.")
def command(file: Path, out: Path) -> Mapping[str, Any]:
    """Fetches what a file of `hetfeat share` names, each file checked against its digest."""
    from registry.presigned import fetch_presigned, read_request

    request = read_request(file)
    fetch_presigned(request, out)
    return {"uri": request.model, "folder": out, "manifest_sha256": request.manifest_sha256}
