"""The commands of `hetfeat records` that join stores, or share them by a table."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetfeat.dataset.tables.uri import AsOf, Place, TableUri
from hetfeat.errors import RequestError
from registry.cli import app
from registry.cli.options import REQUIRED, argument, as_of_option, option
from registry.cli.params import NAMES, PLACE, RENAMED

if TYPE_CHECKING:
    from hetfeat.dataset.tables.joining import Joined


def rename_option() -> Any:
    """The `--rename` of every command that joins records."""
    help_text = "Another name for a device of the records that join; may be repeated."
    return option((), help_text, type=RENAMED, multiple=True)


@dataclass(frozen=True)
class MergeOptions:
    """Options of `hetfeat records merge`."""

    store: tuple[Path, ...] = argument(
        metavar="DIR...", nargs=-1, type=click.Path(readable=False, path_type=Path)
    )
    out: Path = option(REQUIRED, "Record store; made, or added to.")
    rename: tuple[tuple[str, str], ...] = rename_option()


@app.command(
    "merge",
    MergeOptions,
    example="hetfeat records merge mine yours --out ours",
    interrupted="what was added is kept; the same call goes on",
)
def merge(options: MergeOptions) -> dict[str, Any]:
    """Add the records of stores to another; the same measurement is kept once.

    A device with the name of another device is refused.
    """
    from hetfeat.dataset.store import RecordStore
    from hetfeat.dataset.tables import transport

    sources = [RecordStore.open(path) for path in options.store]
    target = RecordStore.create(options.out)
    joined = transport.merge(sources, target, dict(options.rename))
    return {**_plain(joined), "dataset_digest": target.digest(), "out": options.out}


@dataclass(frozen=True)
class PushOptions:
    """Options of `hetfeat records push`."""

    store: Path = argument(metavar="DIR")
    table: Place = argument(metavar="URI", type=PLACE)
    rename: tuple[tuple[str, str], ...] = rename_option()


@app.command(
    "push",
    PushOptions,
    example="hetfeat records push records s3://lab/records",
    interrupted="what was committed is kept; the same call goes on",
)
def push(options: PushOptions) -> dict[str, Any]:
    """Add a store's records to a table, made if there is none; nothing is added twice."""
    from hetfeat.dataset.store import RecordStore
    from hetfeat.dataset.tables import transport
    from hetfeat.dataset.tables.table import RecordTable

    store = RecordStore.open(options.store)
    table = RecordTable.create(_table(options.table))
    joined = transport.push(store, table, dict(options.rename))
    return {**_plain(joined), "table": table.uri, "version": table.version}


@dataclass(frozen=True)
class PullRecordsOptions:
    """Options of `hetfeat records pull`."""

    table: Place = argument(metavar="URI", type=PLACE)
    out: Path = option(REQUIRED, "Record store; made, or added to.")
    device: tuple[str, ...] = option((), "Only these devices.  [default: all]", type=NAMES)
    as_of: AsOf | None = as_of_option()
    rename: tuple[tuple[str, str], ...] = rename_option()


@app.command(
    "pull",
    PullRecordsOptions,
    example="hetfeat records pull s3://lab/records --out records",
    interrupted="no record was added; the same call begins anew",
)
def pull(options: PullRecordsOptions) -> dict[str, Any]:
    """Add a table's records to a store; what it has already is left out."""
    from hetfeat.dataset.store import RecordStore
    from hetfeat.dataset.tables import transport
    from hetfeat.dataset.tables.table import RecordTable

    table = RecordTable.open(_table(options.table), options.as_of)
    store = RecordStore.create(options.out)
    joined = transport.pull(table, store, options.device or None, dict(options.rename))
    return {
        **_plain(joined),
        "version": table.version,
        "dataset_digest": store.digest(),
        "out": options.out,
    }


@dataclass(frozen=True)
class CompactOptions:
    """Options of `hetfeat records compact`."""

    table: Place = argument(metavar="URI", type=PLACE)
    keep_hours: int | None = option(
        None,
        "Then remove files that no version of the last hours has.  [default: remove none]",
        type=click.IntRange(1),
    )


@app.command(
    "compact",
    CompactOptions,
    example="hetfeat records compact s3://lab/records --keep-hours 720",
    interrupted="the table is as it was, or compacted",
)
def compact(options: CompactOptions) -> dict[str, Any]:
    """Make a table's many small files few; older versions stay until their files are removed."""
    from hetfeat.dataset.tables import upkeep
    from hetfeat.dataset.tables.table import RecordTable

    table = RecordTable.open(_table(options.table))
    before, records = table.size
    upkeep.compact(table)
    removed = [] if options.keep_hours is None else upkeep.vacuum(table, options.keep_hours)
    table = RecordTable.open(table.uri)
    return {
        "records": records,
        "files_before": before,
        "files": table.size[0],
        "removed": len(removed),
        "version": table.version,
    }


def verified(uri: TableUri, as_of: AsOf | None) -> app.Result:
    """What `hetfeat records verify` says of a table."""
    from hetfeat.dataset.tables import upkeep
    from hetfeat.dataset.tables.table import RecordTable

    table = RecordTable.open(uri, as_of)
    damaged = upkeep.damaged(table)
    files, records = table.size
    value = {"version": table.version, "files": files, "records": records, "damaged": damaged}
    return app.Result(value, exit_code=1 if damaged else 0)


def _table(place: Place) -> TableUri:
    """The URI that must be one."""
    if isinstance(place, TableUri):
        return place
    raise RequestError(
        f"'{place}', which is no table",
        "s3://BUCKET/KEY, file:///FOLDER or a table's folder",
        "name one",
    )


def _plain(joined: "Joined") -> dict[str, Any]:
    return vars(joined) | {"devices": sorted(joined.devices)}
