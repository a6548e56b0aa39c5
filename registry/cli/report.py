"""`hetfeat report`: the papers' tables and figures from our own runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetfeat.dataset.tables.uri import AsOf, Place
from registry.cli import app
from registry.cli.options import as_of_option, option
from registry.cli.params import EFFORT, PLACE
from registry.cli.places import local


def _render(value: Any) -> str:
    """What each table comes to, then what is absent and where it all lies."""
    lines = []
    for table in value["tables"]:
        lines += [table["title"], f"  {table['verdict'] or 'every cell was run'}", ""]
    lines += [f"left out: {what}: {why}" for what, why in value["left_out"].items()]
    ran = f"{value['ran']} runs made for it, itself run {value['run_id']}"
    return "\n".join([*lines, "", ran, f"page {value['page']}"])


@dataclass(frozen=True)
class ReportOptions:
    """Options of `hetfeat report`."""

    out: Path = option(Path("report"), "Folder of page, tables and figures.")
    records: Place | None = option(
        None, "Record store.  [default: the packaged data set]", type=PLACE
    )
    as_of: AsOf | None = as_of_option()
    effort: str = option("quick", "What is run: minutes to days.", type=EFFORT)
    run_missing: bool = option(True, "Run what is missing.")


@app.command(
    "report",
    ReportOptions,
    example="hetfeat report --out report",
    render=_render,
    interrupted="runs that ended are kept; the same command goes on",
)
def command(options: ReportOptions) -> dict[str, Any]:
    """Remake the papers' tables from runs, running what is missing; one page, CSV, figures."""
    from registry.jobs.report import ReportRequest, make_report

    given = vars(options) | {"records": local(options.records, options.as_of)}
    del given["as_of"]
    return make_report(ReportRequest(**given))
