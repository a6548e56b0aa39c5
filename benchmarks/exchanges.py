"""What exchanges of factors are worth to G-BFS, replayed on slices of GEMM spaces measured whole.

    python benchmarks/exchanges.py --out DIR [--slices 'NAME;...'] [--seeds 200]

A slice holds every way to split the columns of a product, all else fixed. Its states are measured
once on this machine, live, and kept in DIR; the same command goes on where it was stopped. Then
`gbfs` searches each slice with the moves of the paper, and with exchanges beside them, seed after
seed. Changes are of the mean excess over the fastest state, their intervals of a bootstrap
over seeds.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from live_gemm import Kept
from search import figure, table
from tqdm import tqdm

from hetfeat.devices.probe import local_profile
from hetfeat.models.spread import bootstrap
from hetfeat.search.base import State, Timed
from hetfeat.search.gbfs import GreedyBestFirst
from hetfeat.search.runner import run_search
from hetfeat.search.space import Dimension, TileSpace
from hetfeat.tune.gemm_measurer import gemm_measurer

BUDGETS = (10, 20, 40, 80)
NEAR = 0.05
WAYS = {"moves": False, "and exchanges": True}


@dataclass(frozen=True)
class Slice:
    """M, N and K of a product, and the factors of M and K that stay."""

    shape: tuple[int, int, int]
    fixed: State

    @property
    def space(self) -> TileSpace:
        return TileSpace([Dimension(self.shape[1], 4)])


SLICES = {
    "768, 4 rows": Slice((128, 768, 768), (4, 8, 1, 4, 96, 8)),
    "784, 4 rows": Slice((128, 784, 768), (4, 8, 1, 4, 96, 8)),
    "768, 8 rows": Slice((128, 768, 768), (4, 4, 1, 8, 96, 8)),
}
"""Columns in four slots; 4 or 8 rows are innermost."""


def times_of(folder: Path, name: str, at_once: int = 24) -> dict[State, float | None]:
    """Seconds of every state of a slice, measured where DIR has none; None for a failure."""
    own = SLICES[name]
    m, n, k = own.shape
    kept = Kept(folder, f"{m},{n},{k}")
    columns = [own.space.state_at(i) for i in range(own.space.size)]
    missing = [state for state in columns if own.fixed + state not in kept.known]
    if missing:
        with gemm_measurer(local_profile(), m, n, k, kept.known) as measure:
            for first in tqdm(range(0, len(missing), at_once), desc=name, mininterval=10):
                measure([own.fixed + state for state in missing[first : first + at_once]])
                kept.write_times()
    return {state: kept.known[own.fixed + state].seconds for state in columns}


def replay(times_s: dict[State, float | None]) -> Callable[[Sequence[State]], list[Timed]]:
    """What was measured of states."""
    return lambda states: [Timed(state, times_s[state]) for state in states]


def rows_of(name: str, times_s: dict[State, float | None], seeds: int) -> list[list[str]]:
    """Two rows of the table: what each way needs, and what it is left with after some budgets."""
    space = SLICES[name].space
    optimum_s = min(seconds for seconds in times_s.values() if seconds is not None)
    excess = {}
    for way, exchanges in WAYS.items():
        searches = (GreedyBestFirst(space, seed, exchanges=exchanges) for seed in range(seeds))
        trials = [run_search(search, replay(times_s), space.size) for search in searches]
        excess[way] = np.array(
            [[np.inf if s is None else s / optimum_s - 1 for s in t.curve_s] for t in trials]
        )
    rows = []
    for way, own in excess.items():
        needed = figure(((own <= NEAR).argmax(axis=1) + 1).tolist(), 1.0)
        cells = [name, str(space.size), way, needed]
        for budget in BUDGETS:
            left = 100 * own[:, budget - 1]
            less = bootstrap(left - 100 * excess["moves"][:, budget - 1], np.arange(seeds))
            change = f", {less.mean:+.0f} ({less.low:+.0f} to {less.high:+.0f})"
            cells.append(f"{left.mean():.0f}{change if way != 'moves' else ''}")
        rows.append(cells)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--slices", type=lambda text: text.split(";"), default=[*SLICES])
    parser.add_argument("--seeds", type=int, default=200)
    given = parser.parse_args()
    rows = []
    for name in given.slices:
        rows += rows_of(name, times_of(given.out, name), given.seeds)
    head = ["slice", "states", "neighbours", f"states to {NEAR:.0%}"]
    head += [f"excess after {budget}, %" for budget in BUDGETS]
    sys.stdout.write(table(head, rows) + "\n")


if __name__ == "__main__":
    main()
