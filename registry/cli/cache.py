"""`hetfeat cache`: the copies of versions that `pull` and `deploy` keep on this machine."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import click

from registry.cli import app
from registry.cli.options import option


@click.group("cache", cls=app.Group)
def command() -> None:
    """Copies of versions on this machine."""


@dataclass(frozen=True)
class CachePruneOptions:
    """Options of `hetfeat cache prune`."""

    max_gb: float = option(5.0, "What may stay, in 1e9 bytes.", type=click.FloatRange(0))


@app.command("prune", CachePruneOptions, example="hetfeat cache prune --max-gb 5")
def prune(options: CachePruneOptions) -> dict[str, Any]:
    """Remove copies used longest ago until the rest fits, and what interrupted pulls left.

    What was used within the last hour stays: another process may be reading it.
    """
    from registry.files import cache, cache_eviction

    return {
        "folder": cache.models_folder(),
        **dataclasses.asdict(cache_eviction.prune(options.max_gb * 1e9)),
    }


command.add_command(prune)
