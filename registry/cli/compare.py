"""Prints runs side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

from registry.cli import app, output


def _as_text(value: Mapping[str, Any]) -> str:
    parts = []
    for what in ("metrics", "parameters"):
        rows = [
            {what: name, **dict(zip(value["columns"], row, strict=True))}
            for name, row in value[what].items()
        ]
        parts.append(output.table(rows))
    return "\n\n".join(filter(None, parts)) or "the runs have no figures and the same parameters"


@app.command("compare", render=_as_text, short_help="Print runs side by side.")
@app.argument("runs", nargs=-1, required=True, metavar="RUN RUN...")
@app.option("--system", type=app.SWITCH, default="false", help="Give samples of the machine, too.")
def command(runs: Sequence[str], system: bool) -> Mapping[str, Any]:
    """Prints figures of runs side by side, and the parameters in which they differ.

    A RUN is the id of a run, or a version that it made, such as models:/NAME/3.
    """
    from registry.tracking.compare import compare

    found = compare(runs, system=system)
    columns = [given if "/" in given or "@" in given else given[:12] for given in runs]
    return {
        "runs": found.runs,
        "columns": columns,
        "metrics": found.metrics,
        "parameters": found.parameters,
    }
