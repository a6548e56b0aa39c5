"""Prints runs side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from registry.cli import app, output
from registry.cli.options import argument, option


def _as_text(value: Mapping[str, Any]) -> str:
    parts = []
    for what in ("metrics", "parameters"):
        rows = [
            {what: name, **dict(zip(value["columns"], row, strict=True))}
            for name, row in value[what].items()
        ]
        parts.append(output.table(rows))
    return "\n\n".join(filter(None, parts)) or "the runs have no figures and the same parameters"


@dataclass(frozen=True)
class CompareOptions:
    """Options of `hetfeat compare`."""

    runs: tuple[str, ...] = argument(nargs=-1, metavar="RUN RUN...")
    system: bool = option(False, "Give samples of the machine, too.")


@app.command(
    "compare",
    CompareOptions,
    example="hetfeat compare RUN_ID RUN_ID",
    render=_as_text,
    short_help="Print runs side by side.",
)
def command(options: CompareOptions) -> Mapping[str, Any]:
    """Prints figures of runs side by side, and the parameters in which they differ.

    A RUN is the id of a run, or a version that it made, such as models:/NAME/3.
    """
    from registry.tracking.compare import compare

    found = compare(options.runs, system=options.system)
    columns = [given if "/" in given or "@" in given else given[:12] for given in options.runs]
    return {
        "runs": found.runs,
        "columns": columns,
        "metrics": found.metrics,
        "parameters": found.parameters,
    }
