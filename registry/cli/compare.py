"""Prints runs side by side."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from registry.cli import app, output
from registry.cli.options import argument, option

_BETTER = {
    "higher": re.compile(r"(^|[._])(pca|top\d+|r2)($|_)"),
    "lower": re.compile(r"(^|[._])(rmse|loss|error|excess)$|_(ms|s|bytes|mb)$"),
}
"""What the name of a metric is like that is better the higher, or the lower, it is."""


def _as_text(value: Mapping[str, Any]) -> str:
    metrics, parameters = (
        [
            {what: name, **dict(zip(value["columns"], row, strict=True))}
            for name, row in value[what].items()
        ]
        for what in ("metrics", "parameters")
    )
    for row, figures in zip(metrics, value["metrics"].values(), strict=True):
        row |= _judged(row["metrics"], figures, value["columns"])
    tables = filter(None, [output.table(metrics), output.table(parameters)])
    return "\n\n".join(tables) or "the runs have no figures and the same parameters"


def _judged(
    metric: str, figures: Sequence[float | None], columns: Sequence[str]
) -> dict[str, str | None]:
    """Which way a metric is better, and the run in which it is best, if it is in one alone."""
    better = next((way for way, pattern in _BETTER.items() if pattern.search(metric)), None)
    known = [figure for figure in figures if figure is not None]
    if better is None or len(set(known)) < 2:
        return {"better is": better, "best": None}
    best = max(known) if better == "higher" else min(known)
    winners = [name for name, of in zip(columns, figures, strict=True) if of == best]
    return {"better is": better, "best": winners[0] if len(winners) == 1 else None}


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
