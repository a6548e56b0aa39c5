"""`hetfeat report`: the papers' tables and figures from our own runs."""

from pathlib import Path
from typing import Any

from registry.cli import app


def _render(value: Any) -> str:
    """What each table comes to, then what is absent and where it all lies."""
    lines = []
    for table in value["tables"]:
        lines += [table["title"], f"  {table['verdict'] or 'every cell was run'}", ""]
    lines += [f"left out: {what}: {why}" for what, why in value["left_out"].items()]
    ran = f"{value['ran']} runs made for it, itself run {value['run_id']}"
    return "\n".join([*lines, "", ran, f"page {value['page']}"])


@app.command(
    "report",
    render=_render,
    interrupted="runs that ended are kept; the same command goes on",
)
@app.option("--out", type=Path, default="report", help="Folder of page, tables and figures.")
@app.option("--records", type=Path, help="Record store.  [default: the packaged data set]")
@app.option("--effort", type=app.EFFORT, default="quick", help="What is run: minutes to days.")
@app.option("--run-missing", type=app.SWITCH, default="true", help="Run what is missing.")
def command(**wanted: Any) -> dict[str, Any]:
    """Remake the papers' tables from runs, running what is missing; one page, CSV, figures."""
    from registry.jobs.report import ReportRequest, make_report

    return make_report(ReportRequest(**wanted))
