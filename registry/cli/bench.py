"""`hetfeat bench`: how fast a bundle is, beside other engines."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from registry.cli import app, output
from registry.cli.options import argument, option
from registry.cli.params import NETWORK


def _render(report: Any) -> str:
    rows = [{"": name, **(found or {})} for name, found in report["engines"].items()]
    return output.table(rows)


@dataclass(frozen=True)
class BenchOptions:
    """Options of `hetfeat bench`."""

    bundle: Path = argument()
    peers: tuple[str, ...] = option((), "Engines to compare with, such as torch,openvino.")
    network: str | None = option(
        None, "What the peers run, if it is a file or module:function.", type=NETWORK
    )
    rounds: int = option(20, "Turns of each engine.", type=click.IntRange(1))


@app.command(
    "bench",
    BenchOptions,
    example="hetfeat bench bundle --peers onnxruntime,openvino",
    render=_render,
)
def command(options: BenchOptions) -> dict[str, Any]:
    """Time a bundle, each engine in a process of its own, taking turns."""
    from hetfeat.deploy.bench import bench_bundle

    engines = bench_bundle(options.bundle, options.peers, options.network, options.rounds)
    return {"engines": engines}
