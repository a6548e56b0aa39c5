"""`hetfeat search`: GEMM and kernel searches, on a recorded space or live."""

from pathlib import Path
from typing import Any

import click

from registry.commands import _cli


@_cli.command("search")
@_cli.option("--space", type=Path, help="Recorded space: a Kernel Tuner cache, UCI SGEMM's zip.")
@_cli.option("--gemm", metavar="M,N,K", help="Or a shape to multiply live on --device.")
@_cli.option("--device", default="local", help="local, this machine's name or a profile's file.")
@_cli.option(
    "--strategy",
    type=_cli.NAMES,
    default="random,gbfs,surrogate",
    help="random, annealing, gbfs, na2c, rnn, xgb, evolution, surrogate.",
)
@_cli.option("--budget", default="100", help="Evaluations: a count, or a fraction such as 0.001.")
@_cli.option("--repeats", type=click.IntRange(1), default=1, help="Runs, each of its own seed.")
@_cli.option("--prior", type=Path, help="The same space recorded on another device, to begin with.")
@_cli.seed
def command(**wanted: Any) -> dict[str, Any]:
    """Compare searches at an equal budget; each is a run with its best-so-far curve."""
    from registry.searching import SearchRequest, search_and_log

    return search_and_log(SearchRequest(**wanted))
