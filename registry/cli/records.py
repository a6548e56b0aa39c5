"""`hetfeat records`: what a store holds, whether it is intact, what matters in it, the way out."""

from pathlib import Path
from typing import Any

import click

from registry.cli import app


@click.group("records", cls=app.Group)
def command() -> None:
    """What a record store holds, whether it is intact; export it to plain TVM."""


@app.command("stats")
@app.argument("store", metavar="DIR", type=Path)
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


@app.command("verify")
@app.argument("store", metavar="DIR", type=Path)
def verify(store: Path) -> app.Result:
    """Compare every shard with its digest; exits with 1 if one differs or is gone."""
    from hetfeat.dataset.store import RecordStore

    opened = RecordStore.open(store, whole=False)
    damaged = opened.damaged()
    value = {"shards": len(opened.shards()), "damaged": damaged}
    return app.Result(value, exit_code=1 if damaged else 0)


@app.command("repair", interrupted="nothing is lost; the same call goes on")
@app.argument("store", metavar="DIR", type=Path)
def repair(store: Path) -> dict[str, Any]:
    """Keep whatever is whole, and put bad lines and damaged shards beside it."""
    from hetfeat.dataset import repair as repairing
    from hetfeat.dataset.store import RecordStore

    found = repairing.repair(RecordStore.open(store, whole=False))
    bad = found.lines["set_aside"]
    return {"outcome": "repaired" if bad else "nothing wrong", **vars(found)}


@app.command("export")
@app.argument("store", metavar="DIR", type=Path)
@app.option("--format", type=click.Choice(["metaschedule"]), default="metaschedule")
@app.option("--device", type=app.DEVICE_NAME, help="Only this device; otherwise a folder a device.")
@app.option("--out", type=Path, required=True, help="Folder of the database.")
def export(store: Path, format: str, device: str | None, out: Path) -> dict[str, Any]:
    """Write MetaSchedule JSON databases, which TVM loads and compiles from."""
    from hetfeat.dataset.export import export_metaschedule
    from hetfeat.dataset.store import RecordStore

    return {"databases": export_metaschedule(RecordStore.open(store), out, device), "out": out}


@app.command("study")
@app.argument("store", metavar="DIR", type=Path)
@app.option("--family", help="Hardware family or union.  [default: that of the records]")
@app.seed
def study(store: Path, family: str | None, seed: int) -> dict[str, Any]:
    """Tabulate operators by device and rank the features; logged as a run."""
    from registry.jobs.explore_records import study_records

    return study_records(store, family, seed)


command.add_command(export)
command.add_command(repair)
command.add_command(stats)
command.add_command(study)
command.add_command(verify)
