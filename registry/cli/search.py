"""`hetfeat search`: GEMM and kernel searches, on a recorded space or live."""

from pathlib import Path
from typing import Any

import click

from registry.cli import app


@app.command("search")
@app.option("--space", type=Path, help="Recorded space: a Kernel Tuner cache, UCI SGEMM's zip.")
@app.option("--gemm", metavar="M,N,K", help="Or a shape to multiply live on --device.")
@app.option("--device", default="local", help="local, this machine's name or a profile's file.")
@app.option(
    "--strategy",
    type=app.NAMES,
    default="random,gbfs,surrogate",
    help="random, annealing, gbfs, na2c, rnn, xgb, evolution, surrogate.",
)
@app.option("--budget", default="100", help="Evaluations: a count, or a fraction such as 0.001.")
@app.option("--repeats", type=click.IntRange(1), default=1, help="Runs, each of its own seed.")
@app.option("--prior", type=Path, help="The same space recorded on another device, to begin with.")
@app.seed
def command(**wanted: Any) -> dict[str, Any]:
    """Compare searches at an equal budget; each is a run with its best-so-far curve."""
    from registry.jobs.search import SearchRequest, search_and_log

    return search_and_log(SearchRequest(**wanted))
