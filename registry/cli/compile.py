"""`hetfeat compile`: a bundle of what a deployment has found so far."""

from pathlib import Path

from registry.cli import app
from registry.cli.deploy import render


@app.command("compile", render=render)
@app.option("--from", "journal", type=Path, required=True, help="Journal of a deployment.")
@app.option("--network", help="The journal's module:function once more: its code is run.")
@app.option("--out", type=Path, default="bundle", help="Folder of the bundle; must not exist.")
def command(journal: Path, network: str | None, out: Path) -> app.Result:
    """Compile, verify, compare and register what a deployment has found so far.

    The journal lies beside the deployment's bundle, as OUT.journal; tuning may go on meanwhile.
    """
    from registry.jobs.deploy import compile_and_register

    report = compile_and_register(journal, out, network)
    return app.Result(report, app.INTERRUPTED if report.get("stopped") else 0)
