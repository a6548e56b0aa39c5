"""`hetfeat compile`: a bundle of what a deployment has found so far."""

from dataclasses import dataclass
from pathlib import Path

from registry.cli import app
from registry.cli.deploy import render
from registry.cli.options import REQUIRED, option, output_option


@dataclass(frozen=True)
class CompileOptions:
    """Options of `hetfeat compile`."""

    journal: Path = option(REQUIRED, "Journal of a deployment.", flag="--from")
    network: str | None = option(None, "The journal's module:function once more: its code is run.")
    out: Path = option(Path("bundle"), "Folder of the bundle; must not exist.")
    output: tuple[str, ...] = output_option()


@app.command(
    "compile",
    CompileOptions,
    example="hetfeat compile --from bundle.journal --out so-far",
    render=render,
)
def command(options: CompileOptions) -> app.Result:
    """Compile, verify, compare and register what a deployment has found so far.

    The journal lies beside the deployment's bundle, as OUT.journal; tuning may go on meanwhile.
    """
    from registry.jobs.deploy import compile_and_register

    made = compile_and_register(options.journal, options.out, options.network, options.output)
    return app.Result(made.as_json(), app.INTERRUPTED if made.report.stopped else 0)
