"""`hetfeat bench`: how fast a bundle is, beside other engines."""

from pathlib import Path
from typing import Any

import click

from registry.cli import app, output


def _render(report: Any) -> str:
    rows = [{"": name, **(found or {})} for name, found in report["engines"].items()]
    return output.table(rows)


@app.command("bench", render=_render)
@app.argument("bundle", type=Path)
@app.option("--peers", type=app.NAMES, help="Engines to compare with, such as torch,openvino.")
@app.option("--network", help="What the peers run, if it is a file or module:function.")
@app.option("--rounds", type=click.IntRange(1), default=20, help="Turns of each engine.")
def command(
    bundle: Path, peers: tuple[str, ...] | None, network: str | None, rounds: int
) -> dict[str, Any]:
    """Time a bundle, each engine in a process of its own, taking turns."""
    from hetfeat.deploy.bench import bench_bundle

    return {"engines": bench_bundle(bundle, peers or (), network, rounds)}
