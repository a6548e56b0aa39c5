"""Brings a version's files here, verified."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.cli import app
from registry.cli.options import REQUIRED, argument, option, unrecorded_option
from registry.cli.params import DEVICE_NAME, MODEL_VERSION


@dataclass(frozen=True)
class PullOptions:
    """Options of `hetfeat pull`."""

    model: str = argument(metavar="NAME-or-URI", type=MODEL_VERSION)
    stage: str | None = option(None, "For a plain name; production if nothing else is said.")
    device: str | None = option(None, "Prefer the version for this device.", type=DEVICE_NAME)
    out: Path = option(REQUIRED, "A new folder.")
    unrecorded: bool = unrecorded_option()


@app.command(
    "pull",
    PullOptions,
    example="hetfeat pull costmodel.cpu-x86 --stage production --out model",
    short_help="Bring a version's verified files to this machine.",
)
def command(options: PullOptions) -> Mapping[str, Any]:
    """Brings the files of a version here, each checked against the digest it was registered with.

    Works without the registry once the same was pulled before.
    """
    from registry.files.pull import pull

    model, stage = options.model, options.stage
    if stage is None and "/" not in model and "@" not in model:
        stage = "production"
    pulled = pull(
        model, stage, device=options.device, out=options.out, unrecorded=options.unrecorded
    )
    return {
        "name": pulled.version.name,
        "version": pulled.version.version,
        "uri": pulled.version.uri,
        "folder": pulled.folder,
        "manifest_sha256": pulled.manifest_sha256,
        "source": pulled.source,
    }
