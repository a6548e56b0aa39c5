"""`hetfeat compile`: a bundle of what a deployment has found so far."""

from pathlib import Path

from registry.commands import _cli
from registry.commands.deploy import render


@_cli.command("compile", render=render)
@_cli.option("--from", "journal", type=Path, required=True, help="Journal of a deployment.")
@_cli.option("--network", help="The journal's module:function once more: its code is run.")
@_cli.option("--out", type=Path, default="bundle", help="Folder of the bundle; must not exist.")
@_cli.output
def command(journal: Path, network: str | None, out: Path, output: tuple[str, ...]) -> _cli.Result:
    """Compile, verify, compare and register what a deployment has found so far.

    The journal lies beside the deployment's bundle, as OUT.journal; tuning may go on meanwhile.
    """
    from registry.deployment import compile_and_register

    report = compile_and_register(journal, out, network, output)
    return _cli.Result(report, _cli.INTERRUPTED if report.get("stopped") else 0)
