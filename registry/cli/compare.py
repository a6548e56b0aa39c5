"""Prints runs side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hetfeat.errors import RequestError
from registry.cli import app, output
from registry.cli.options import argument, option
from registry.cli.params import MODEL_VERSION

_BEST = "best"
"""Column that names the run in which a figure is best."""


def _as_text(value: Mapping[str, Any]) -> str:
    metrics, parameters, gates = _tables(value).values()
    verdict = value["promotion"]["verdict"]
    if not metrics and not parameters:
        verdict = f"the runs have no figures and the same parameters\n\n{verdict}"
    tables = [output.table(metrics, best=_BEST), output.table(parameters)]
    page = f"page {value['html']}" if value["html"] else ""
    return "\n\n".join(filter(None, [*tables, verdict, output.table(gates), page]))


def _tables(value: Mapping[str, Any]) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Rows of the tables by title: of figures, of parameters, of what the gates would say."""
    columns = value["columns"]
    figures = [
        {"metrics": name, **dict(zip(columns, row, strict=True)), **_said(value, name)}
        for name, row in value["metrics"].items()
    ]
    parameters = [
        {"parameters": name, **dict(zip(columns, row, strict=True))}
        for name, row in value["parameters"].items()
    ]
    gates = value["promotion"]["gates"]
    return {"Figures": figures, "Parameters that differ": parameters, "Gates": gates}


def _said(value: Mapping[str, Any], metric: str) -> dict[str, str | None]:
    judged = value["judged"][metric]
    difference, best = judged["difference"], judged["best"]
    return {
        "last - first": None if difference is None else f"{difference:+.4g}",
        "better is": judged["better"],
        _BEST: None if best is None else value["columns"][best],
    }


@dataclass(frozen=True)
class CompareOptions:
    """Options of `hetfeat compare`."""

    runs: tuple[str, ...] = argument(nargs=-1, metavar="RUN RUN...", type=MODEL_VERSION)
    system: bool = option(False, "Give samples of the machine, too.")
    html: Path | None = option(None, "File for a page, which needs nothing else.")


@app.command(
    "compare",
    CompareOptions,
    example="hetfeat compare models:/costmodel.cpu-x86/1 models:/costmodel.cpu-x86/2",
    render=_as_text,
    short_help="Print runs side by side.",
)
def command(options: CompareOptions) -> Mapping[str, Any]:
    """Prints figures of runs side by side, the best of each, and the parameters that differ.

    A RUN is the id of a run, or a version that it made, such as models:/NAME/3. The gates of
    production are asked of the last run's version in the place of the first one's. Nothing moves.
    """
    from registry.tracking.compare import compare, judged, promotion

    html = options.html
    if html is not None and html.is_dir():
        raise RequestError(f"--html '{html}', a folder", "a file for the page", "choose another")
    found = compare(options.runs, system=options.system)
    columns = [given if "/" in given or "@" in given else given[:12] for given in options.runs]
    value: dict[str, Any] = {
        "runs": found.runs,
        "columns": columns,
        "metrics": found.metrics,
        "judged": {name: asdict(judged(name, row)) for name, row in found.metrics.items()},
        "parameters": found.parameters,
        "promotion": asdict(promotion(options.runs)),
        "html": html,
    }
    if html is not None:
        from hetfeat.report.side_by_side import write_page

        write_page(html, value["promotion"]["verdict"], _tables(value), best=_BEST)
    return value
