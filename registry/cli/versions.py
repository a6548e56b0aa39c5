"""Lists registered models, or the versions of one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from registry.cli import app, output
from registry.cli.options import argument
from registry.cli.params import MODEL_NAME


def _as_text(value: Mapping[str, Any]) -> str:
    rows = value["versions"] if "versions" in value else value["models"]
    return output.table(rows) or "nothing is registered yet; `hetfeat train` does"


@dataclass(frozen=True)
class VersionsOptions:
    """Options of `hetfeat versions`."""

    name: str | None = argument(None, type=MODEL_NAME)


@app.command(
    "versions",
    VersionsOptions,
    example="hetfeat versions",
    render=_as_text,
    short_help="List registered models and versions.",
)
def command(options: VersionsOptions) -> Mapping[str, Any]:
    """Lists the registered models, or the versions of the one called NAME.

    Figures of a model are those of its version in production, or of its newest where none is.
    """
    from registry.tracking import listing

    name = options.name
    if name is None:
        return {"models": listing.models()}
    return {"name": name, "versions": listing.versions(name)}
