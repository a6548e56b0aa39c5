"""`hetfeat prune`: fewer records that teach nearly as much."""

from dataclasses import dataclass
from typing import Any

from hetfeat.dataset.tables.uri import AsOf, Place
from hetfeat.errors import RequestError
from registry.cli import app, output
from registry.cli.options import (
    REQUIRED,
    argument,
    as_of_option,
    cluster_option,
    option,
    seed_option,
)
from registry.cli.params import PLACE


def _render(value: Any) -> str:
    """Both totals, then every operator."""
    operators = value["before"]
    rows = [
        {"operator": name, "before": operators[name], "after": value["after"].get(name, 0)}
        for name in sorted(operators, key=lambda name: -operators[name])
    ]
    head = f"kept {value['kept']} of {value['records']} records"
    if value["tested"]:
        head += f", and all {value['tested']} of the tasks to test on"
    return f"{head}\n\n{output.table(rows)}"


@dataclass(frozen=True)
class PruneOptions:
    """Options of `hetfeat prune`."""

    records: Place = argument(metavar="DIR", type=PLACE)
    as_of: AsOf | None = as_of_option()
    out: Place = option(REQUIRED, "New record store.", type=PLACE)
    fraction: float = option(0.55, "Share of the records to keep.")
    cluster: str | None = cluster_option()
    seed: int = seed_option()


@app.command(
    "prune",
    PruneOptions,
    example="hetfeat prune records --fraction 0.5 --out pruned",
    render=_render,
    interrupted="nothing was written",
)
def command(options: PruneOptions) -> dict[str, Any]:
    """Keep the records that teach most; failures and older duplicates go first."""
    if not 0 < options.fraction <= 1:
        raise RequestError(
            f"--fraction {options.fraction}", "a share above 0, at most 1", "say 0.55"
        )
    from hetfeat.cluster import connected, need_sight, over
    from hetfeat.dataset.prune import prune
    from hetfeat.dataset.store import RecordStore
    from hetfeat.dataset.tables.local_copy import local_records
    from hetfeat.dataset.tables.shared_store import new_folder
    from hetfeat.progress import progress

    records = local_records(options.records, options.as_of)
    store = RecordStore.open(records.resolve() if options.cluster else records)
    steps = 2 * len(list(store.pieces()))
    with (
        connected(options.cluster) as cluster,
        progress(steps, "piece") as at,
        new_folder(options.out) as out,
    ):
        need_sight(cluster, store.path)
        found = prune(store, out, options.fraction, options.seed, at, over=over(cluster))
        digest = RecordStore.open(out).digest()
    return {
        "records": sum(found.before.values()),
        "kept": sum(found.after.values()),
        "before": found.before,
        "after": found.after,
        "tested": found.tested,
        "dataset_digest": digest,
    }
