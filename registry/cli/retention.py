"""Removes archived versions that nobody needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from registry.cli import app
from registry.cli.options import argument, option
from registry.cli.params import MODEL_NAME


@dataclass(frozen=True)
class RetentionOptions:
    """Options of `hetfeat retention`."""

    name: str = argument(type=MODEL_NAME)
    older_than: float = option(180.0, "In days.", type=click.FloatRange(0))
    apply: bool = option(False, "Delete, not only list.")


@app.command(
    "retention",
    RetentionOptions,
    example="hetfeat retention costmodel.cpu-x86 --older-than 90",
    short_help="Remove old archived versions that nothing needs.",
    interrupted="what was deleted is in the history; the same command goes on",
)
def command(options: RetentionOptions) -> Mapping[str, Any]:
    """Lists or deletes archived versions of NAME, with their artifacts.

    Never one that `rollback` goes to, nor one that another version was made from.
    """
    from registry.maintenance.retention import candidates, prune

    select = prune if options.apply else candidates
    numbers = [version.version for version in select(options.name, options.older_than)]
    return {"name": options.name, "deleted": options.apply, "versions": numbers}
