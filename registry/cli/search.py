"""`hetfeat search`: GEMM and kernel searches, on a recorded space or live."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from registry.cli import app, output
from registry.cli.options import option, seed_option
from registry.cli.params import DEVICE, STRATEGIES


def _render(value: Any) -> str:
    """A row for each strategy, the best first; then the fastest state by its parameters' names."""
    optimum_ms = value["optimum_ms"]
    reached = [row["best_ms"] for row in value["strategies"].values() if row["best_ms"]]
    least_ms = optimum_ms or min(reached, default=None)
    ratio = "times the optimum" if optimum_ms else "times the best"
    rows = [
        {
            "strategy": name,
            "best ms": row["best_ms"],
            ratio: row["best_ms"] / least_ms if row["best_ms"] else None,
            "search s": row["search_s"],
            "measuring s": row["measuring_s"],
        }
        for name, row in value["strategies"].items()
    ]
    rows.sort(key=lambda row: row[ratio] or math.inf)
    libraries = [{"library": name, "ms": ms} for name, ms in value.get("libraries_ms", {}).items()]
    best = [f"{name}={of}" for name, of in (value["best_parameters"] or {}).items()]
    parts = [
        output.table(rows),
        f"{value['budget']} of {value['space_size']} states a run",
        output.table(libraries),
        " ".join(["fastest:", *best]) if best else "",
    ]
    return "\n\n".join(filter(None, parts))


@dataclass(frozen=True)
class SearchOptions:
    """Options of `hetfeat search`."""

    space: Path | None = option(None, "Recorded space: a Kernel Tuner cache, UCI SGEMM's zip.")
    gemm: str | None = option(None, "Or a shape to multiply live on --device.", metavar="M,N,K")
    device: str = option("local", "local, this machine's name or a profile's file.", type=DEVICE)
    strategy: tuple[str, ...] = option(
        ("random", "gbfs", "surrogate"),
        "random, annealing, gbfs, na2c, rnn, xgb, evolution, surrogate.",
        type=STRATEGIES,
    )
    budget: str = option("100", "Evaluations: a count, or a fraction such as 0.001.")
    repeats: int = option(1, "Runs, each of its own seed.", type=click.IntRange(1))
    prior: Path | None = option(None, "The same space recorded on another device, to begin with.")
    seed: int = seed_option()


@app.command(
    "search",
    SearchOptions,
    example="hetfeat search --gemm 256,256,256 --strategy gbfs,na2c --budget 100",
    render=_render,
)
def command(options: SearchOptions) -> dict[str, Any]:
    """Compare searches at an equal budget; each is a run with its best-so-far curve."""
    from registry.jobs.search import SearchRequest, search_and_log

    return search_and_log(SearchRequest(**vars(options)))
