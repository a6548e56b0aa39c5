"""`hetfeat prune`: fewer records that teach nearly as much."""

from pathlib import Path
from typing import Any

from hetfeat.errors import RequestError
from registry.cli import app, output


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


@app.command("prune", render=_render, interrupted="nothing was written")
@app.argument("records", metavar="DIR", type=Path)
@app.option("--out", type=Path, required=True, help="New record store.")
@app.option("--fraction", type=float, default=0.55, help="Share of the records to keep.")
@app.seed
def command(records: Path, out: Path, fraction: float, seed: int) -> dict[str, Any]:
    """Keep the records that teach most; failures and older duplicates go first."""
    if not 0 < fraction <= 1:
        raise RequestError(f"--fraction {fraction}", "a share above 0, at most 1", "say 0.55")
    from hetfeat.dataset.prune import prune
    from hetfeat.dataset.store import RecordStore
    from hetfeat.progress import progress

    store = RecordStore.open(records)
    with progress(2 * len(list(store.pieces())), "piece") as at:
        found = prune(store, out, fraction, seed, at)
    return {
        "records": sum(found.before.values()),
        "kept": sum(found.after.values()),
        "before": found.before,
        "after": found.after,
        "tested": found.tested,
        "dataset_digest": RecordStore.open(out).digest(),
    }
