"""`hetfeat records`: what a record store holds, and whether it is intact."""

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
    from hetfeat.dataset.store import RecordStore

    opened = RecordStore.open(store)
    table = opened.read(["device", "operator", "task", "error"])
    counts = table.group_by(["device", "operator"]).aggregate(
        [("task", "count"), ("task", "count_distinct"), ("error", "count")]
    )
    names = {"task_count": "records", "task_count_distinct": "tasks", "error_count": "failed"}
    rows = [
        {names.get(key, key): value for key, value in row.items()} for row in counts.to_pylist()
    ]
    return {
        "records": table.num_rows,
        "dataset_digest": opened.digest(),
        "networks": sorted(opened.networks()),
        "counts": sorted(rows, key=lambda row: (row["device"], row["operator"])),
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


command.add_command(stats)
command.add_command(verify)
