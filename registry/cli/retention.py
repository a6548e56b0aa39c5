"""Removes archived versions that nobody needs."""

from collections.abc import Mapping
from typing import Any

import click

from registry.cli import app


@app.command(
    "retention",
    short_help="Remove old archived versions that nothing needs.",
    interrupted="what was deleted is in the history; the same command goes on",
)
@app.argument("name")
@app.option("--older-than", type=click.FloatRange(0), default=180.0, help="In days.")
@app.option("--apply", type=app.SWITCH, default="false", help="Delete, not only list.")
def command(name: str, older_than: float, apply: bool) -> Mapping[str, Any]:
    """Lists or deletes archived versions of NAME, with their artifacts.

    Never one that `rollback` goes to, nor one that another version was made from.
    """
    from registry.maintenance.retention import candidates, prune

    found = prune(name, older_than) if apply else candidates(name, older_than)
    return {"name": name, "deleted": apply, "versions": [version.version for version in found]}
