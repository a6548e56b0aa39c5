"""`hetfeat search`: GEMM and kernel searches, on a recorded space or live."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from registry.cli import app
from registry.cli.options import option, seed_option


@dataclass(frozen=True)
class SearchOptions:
    """Options of `hetfeat search`."""

    space: Path | None = option(None, "Recorded space: a Kernel Tuner cache, UCI SGEMM's zip.")
    gemm: str | None = option(None, "Or a shape to multiply live on --device.", metavar="M,N,K")
    device: str = option("local", "local, this machine's name or a profile's file.")
    strategy: tuple[str, ...] = option(
        ("random", "gbfs", "surrogate"),
        "random, annealing, gbfs, na2c, rnn, xgb, evolution, surrogate.",
    )
    budget: str = option("100", "Evaluations: a count, or a fraction such as 0.001.")
    repeats: int = option(1, "Runs, each of its own seed.", type=click.IntRange(1))
    prior: Path | None = option(None, "The same space recorded on another device, to begin with.")
    seed: int = seed_option()


@app.command(
    "search",
    SearchOptions,
    example="hetfeat search --gemm 256,256,256 --strategy gbfs,na2c --budget 100",
)
def command(options: SearchOptions) -> dict[str, Any]:
    """Compare searches at an equal budget; each is a run with its best-so-far curve."""
    from registry.jobs.search import SearchRequest, search_and_log

    return search_and_log(SearchRequest(**vars(options)))
