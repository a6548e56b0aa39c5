"""Brings a version's files here, verified."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from registry.cli import app


@app.command("pull", short_help="Bring a version's verified files to this machine.")
@app.argument("model", metavar="NAME-or-URI")
@app.option("--stage", default=None, help="For a plain name; production if nothing else is said.")
@app.option("--device", type=app.DEVICE_NAME, help="Prefer the version for this device.")
@app.option("--out", required=True, type=click.Path(path_type=Path), help="A new folder.")
@app.unrecorded
def command(
    model: str, stage: str | None, device: str | None, out: Path, unrecorded: bool
) -> Mapping[str, Any]:
    """Brings the files of a version here, each checked against the digest it was registered with.

    Works without the registry once the same was pulled before.
    """
    from registry.files.pull import pull

    if stage is None and "/" not in model and "@" not in model:
        stage = "production"
    pulled = pull(model, stage, device=device, out=out, unrecorded=unrecorded)
    return {
        "name": pulled.version.name,
        "version": pulled.version.version,
        "uri": pulled.version.uri,
        "folder": pulled.folder,
        "manifest_sha256": pulled.manifest_sha256,
        "source": pulled.source,
    }
