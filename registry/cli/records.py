"""`hetfeat records`: what a store holds, whether it is intact, what matters in it, the way out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hetfeat.dataset.tables.uri import AsOf, Place
from registry.cli import app
from registry.cli.options import (
    REQUIRED,
    argument,
    as_of_option,
    cluster_option,
    option,
    seed_option,
)
from registry.cli.params import DEVICE_NAME, PLACE
from registry.cli.records_shared import compact, merge, pull, push, verified


@click.group("records", cls=app.Group)
def command() -> None:
    """What a record store holds, whether it is intact; export it to plain TVM."""


@dataclass(frozen=True)
class StoreOptions:
    """Options of every command that takes a store alone."""

    store: Path = argument(metavar="DIR")


@dataclass(frozen=True)
class AnyStoreOptions:
    """Options of every command that reads a store, or a table."""

    store: Place = argument(metavar="DIR", type=PLACE)
    as_of: AsOf | None = as_of_option()


@app.command("stats", AnyStoreOptions, example="hetfeat records stats records")
def stats(options: AnyStoreOptions) -> dict[str, Any]:
    """Count records by device and operator."""
    from hetfeat.dataset.stats import counts
    from hetfeat.dataset.store import RecordStore
    from hetfeat.dataset.tables.local_copy import local_records

    opened = RecordStore.open(local_records(options.store, options.as_of))
    found = counts(opened)
    return {
        "records": sum(row["records"] for row in found),
        "dataset_digest": opened.digest(),
        "networks": sorted(opened.networks()),
        "counts": found,
    }


@app.command("verify", AnyStoreOptions, example="hetfeat records verify records")
def verify(options: AnyStoreOptions) -> app.Result:
    """Compare every shard with its digest; exits with 1 if one differs or is gone.

    Of a table, every file is read, and its records are counted.
    """
    if not isinstance(options.store, Path):
        return verified(options.store, options.as_of)
    from hetfeat.dataset.store import RecordStore

    opened = RecordStore.open(options.store, whole=False)
    damaged = opened.damaged_shards()
    value = {"shards": len(opened.shards()), "damaged": damaged}
    return app.Result(value, exit_code=1 if damaged else 0)


@app.command(
    "repair",
    StoreOptions,
    example="hetfeat records repair records",
    interrupted="nothing is lost; the same call goes on",
)
def repair(options: StoreOptions) -> dict[str, Any]:
    """Keep whatever is whole, and put bad lines and damaged shards beside it."""
    from hetfeat.dataset import repair as repairing
    from hetfeat.dataset.store import RecordStore

    found = repairing.repair(RecordStore.open(options.store, whole=False))
    bad = found.lines["set_aside"]
    return {"outcome": "repaired" if bad else "nothing wrong", **vars(found)}


@dataclass(frozen=True)
class ExportOptions(AnyStoreOptions):
    """Options of `hetfeat records export`."""

    format: str = option("metaschedule", "Format to write.", type=click.Choice(["metaschedule"]))
    device: str | None = option(
        None, "Only this device; otherwise a folder a device.", type=DEVICE_NAME
    )
    out: Path = option(REQUIRED, "Folder of the database.")


@app.command("export", ExportOptions, example="hetfeat records export records --out database")
def export(options: ExportOptions) -> dict[str, Any]:
    """Write MetaSchedule JSON databases, which TVM loads and compiles from."""
    from hetfeat.dataset.export import export_metaschedule
    from hetfeat.dataset.store import RecordStore
    from hetfeat.dataset.tables.local_copy import local_records

    store = RecordStore.open(local_records(options.store, options.as_of))
    databases = export_metaschedule(store, options.out, options.device)
    return {"databases": databases, "out": options.out}


@dataclass(frozen=True)
class StudyOptions(AnyStoreOptions):
    """Options of `hetfeat records study`."""

    family: str | None = option(None, "Hardware family or union.  [default: that of the records]")
    cluster: str | None = cluster_option()
    seed: int = seed_option()


@app.command("study", StudyOptions, example="hetfeat records study records")
def study(options: StudyOptions) -> dict[str, Any]:
    """Tabulate operators by device and rank the features; logged as a run."""
    from hetfeat.cluster import connected
    from hetfeat.dataset.tables.local_copy import local_records
    from registry.jobs.explore_records import study_records

    store = local_records(options.store, options.as_of)
    with connected(options.cluster) as cluster:
        return study_records(store, options.family, options.seed, cluster=cluster)


@dataclass(frozen=True)
class FeaturesOptions(AnyStoreOptions):
    """Options of `hetfeat records features`."""

    out: Path = option(REQUIRED, "New folder of Parquet files.")
    cluster: str | None = cluster_option()


@app.command(
    "features",
    FeaturesOptions,
    example="hetfeat records features records --out features",
    interrupted="the folder holds what was written; remove it and begin anew",
)
def features(options: FeaturesOptions) -> dict[str, Any]:
    """Write what a cost model reads of each record as a table: keys, latency, named columns."""
    from hetfeat.cluster import connected, need_sight, over
    from hetfeat.dataset.store import RecordStore
    from hetfeat.dataset.tables.local_copy import local_records
    from hetfeat.models.feature_files import write_features

    records = local_records(options.store, options.as_of)
    store = RecordStore.open(records.resolve() if options.cluster else records)
    with connected(options.cluster) as cluster:
        need_sight(cluster, store.path)
        counts = write_features(store, options.out, over(cluster))
    return {**counts, "out": options.out}


for each in (compact, export, features, merge, pull, push, repair, stats, study, verify):
    command.add_command(each)
