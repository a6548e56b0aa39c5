"""`hetfeat records`: what a record store holds, whether it is intact, what matters in it."""

from pathlib import Path
from typing import Any

import click

from registry.commands import _cli


@click.group("records", cls=_cli.Group)
def command() -> None:
    """What a record store holds, and whether it is intact."""


@_cli.command("stats")
@_cli.argument("store", metavar="DIR", type=Path)
def stats(store: Path) -> dict[str, Any]:
    """Count records by device and operator."""
    from hetfeat.dataset.stats import counts
    from hetfeat.dataset.store import RecordStore

    opened = RecordStore.open(store)
    found = counts(opened)
    return {
        "records": sum(row["records"] for row in found),
        "dataset_digest": opened.digest(),
        "networks": sorted(opened.networks()),
        "counts": found,
    }


@_cli.command("verify")
@_cli.argument("store", metavar="DIR", type=Path)
def verify(store: Path) -> _cli.Result:
    """Compare every shard with its digest; exits with 1 if one differs."""
    from hetfeat.dataset.store import RecordStore

    opened = RecordStore.open(store)
    damaged = opened.damaged()
    value = {"shards": len(opened.shards()), "damaged": damaged}
    return _cli.Result(value, exit_code=1 if damaged else 0)


@_cli.command("study")
@_cli.argument("store", metavar="DIR", type=Path)
@_cli.option("--family", help="Hardware family or union.  [default: that of the records]")
@_cli.seed
def study(store: Path, family: str | None, seed: int) -> dict[str, Any]:
    """Tabulate operators by device and rank the features; logged as a run."""
    from registry.exploring import study_records

    return study_records(store, family, seed)


command.add_command(stats)
command.add_command(study)
command.add_command(verify)
