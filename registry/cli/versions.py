"""Lists registered models, or the versions of one."""

from collections.abc import Mapping
from typing import Any

from registry.cli import app, output


def _as_text(value: Mapping[str, Any]) -> str:
    rows = value["versions"] if "versions" in value else value["models"]
    return output.table(rows) or "nothing is registered yet; `hetfeat train` does"


@app.command("versions", render=_as_text, short_help="List registered models and versions.")
@app.argument("name", required=False)
def command(name: str | None) -> Mapping[str, Any]:
    """Lists the registered models, or the versions of the one called NAME."""
    from registry.tracking import listing

    if name is None:
        return {"models": listing.models()}
    return {"name": name, "versions": listing.versions(name)}
