"""`hetfeat records`: what a store holds, whether it is intact, what matters in it, the way out."""

from pathlib import Path
from typing import Any

import click

from registry.commands import _cli


@click.group("records", cls=_cli.Group)
def command() -> None:
    """What a record store holds, whether it is intact; export it to plain TVM."""


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
    """Compare every shard with its digest; exits with 1 if one differs or is gone."""
    from hetfeat.dataset.store import RecordStore

    opened = RecordStore.open(store, whole=False)
    damaged = opened.damaged()
    value = {"shards": len(opened.shards()), "damaged": damaged}
    return _cli.Result(value, exit_code=1 if damaged else 0)


@_cli.command("repair", interrupted="nothing is lost; the same call goes on")
@_cli.argument("store", metavar="DIR", type=Path)
def repair(store: Path) -> dict[str, Any]:
    """Keep whatever is whole, and put bad lines and damaged shards beside it."""
    from hetfeat.dataset import repair as repairing
    from hetfeat.dataset.store import RecordStore

    found = repairing.repair(RecordStore.open(store, whole=False))
    bad = found.lines["set_aside"]
    return {"outcome": "repaired" if bad else "nothing wrong", **vars(found)}


@_cli.command("export")
@_cli.argument("store", metavar="DIR", type=Path)
@_cli.option("--format", type=click.Choice(["metaschedule"]), default="metaschedule")
@_cli.option(
    "--device", type=_cli.DEVICE_NAME, help="Only this device; otherwise a folder a device."
)
@_cli.option("--out", type=Path, required=True, help="Folder of the database.")
def export(store: Path, format: str, device: str | None, out: Path) -> dict[str, Any]:
    """Write MetaSchedule JSON databases, which TVM loads and compiles from."""
    from hetfeat.dataset.export import export_metaschedule
    from hetfeat.dataset.store import RecordStore

    return {"databases": export_metaschedule(RecordStore.open(store), out, device), "out": out}


@_cli.command("study")
@_cli.argument("store", metavar="DIR", type=Path)
@_cli.option("--family", help="Hardware family or union.  [default: that of the records]")
@_cli.seed
def study(store: Path, family: str | None, seed: int) -> dict[str, Any]:
    """Tabulate operators by device and rank the features; logged as a run."""
    from registry.exploring import study_records

    return study_records(store, family, seed)


command.add_command(export)
command.add_command(repair)
command.add_command(stats)
command.add_command(study)
command.add_command(verify)
