"""`hetfeat cache`: the copies of versions that `pull` and `deploy` keep on this machine."""

import dataclasses
from typing import Any

import click

from registry.cli import app


@click.group("cache", cls=app.Group)
def command() -> None:
    """Copies of versions on this machine."""


@app.command("prune")
@app.option("--max-gb", type=click.FloatRange(0), default=5.0, help="What may stay, in 1e9 bytes.")
def prune(max_gb: float) -> dict[str, Any]:
    """Remove copies used longest ago until the rest fits, and what interrupted pulls left.

    What was used within the last hour stays: another process may be reading it.
    """
    from registry.files import cache, cache_eviction

    return {
        "folder": cache.models_folder(),
        **dataclasses.asdict(cache_eviction.prune(max_gb * 1e9)),
    }


command.add_command(prune)
