"""Live searches for matrix multiplications on this CPU, and the best found beside the libraries.

    python benchmarks/live_gemm.py search --out DIR [--shapes 512,512,512 ...] [--strategy gbfs,...]
    python benchmarks/live_gemm.py libraries --out DIR

`search` gives strategies 0.1 % of the space, seed after seed: all on the first shape, on the others
those of the paper and our own. `gbfs-moves` and `gbfs-exchanges` are `gbfs` without and with
exchanges of factors. DIR keeps each state's time, which all of them share, and each run
that has ended: the same command goes on where it was stopped.
`libraries` lets the three fastest states of each shape and the libraries take turns with equal
threads; the fastest counts. Both print Markdown; docs/experiments holds their last runs.
"""

import argparse
import itertools
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ratios import ratio
from search import read_lines, table
from tqdm import tqdm

from hetfeat.deploy.gemm_bench import LIBRARIES, SEARCHED, compare_matmul, finalists
from hetfeat.devices.probe import local_profile
from hetfeat.search.base import State, StateSearch, Timed
from hetfeat.search.gbfs import GreedyBestFirst
from hetfeat.search.runner import Measure, evaluations_of, run_search
from hetfeat.search.space import TileSpace, gemm_space
from hetfeat.search.strategies import STRATEGIES, make_search
from hetfeat.tune.gemm_measurer import gemm_measurer

FRACTION = "0.001"
CUBES = ["512,512,512", "1024,1024,1024", "2048,2048,2048"]
BERT = ["128,768,768", "128,3072,768", "128,768,3072"]
"""Projections and the two feed-forward layers of BERT-base at 128 tokens, as M,N,K."""
COMPARED = ["gbfs", "na2c", "rnn", "xgb", "surrogate"]
EXCHANGES = {"gbfs-moves": False, "gbfs-exchanges": True}


class Kept:
    """Times of the states of one shape, and the runs that have ended, in files of a folder."""

    def __init__(self, folder: Path, shape: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.shape = shape
        self._times, self._runs = folder / f"times-{shape}.jsonl", folder / "runs.jsonl"
        lines = read_lines(self._times)
        self.known = {tuple(x["state"]): Timed(tuple(x["state"]), x["seconds"]) for x in lines}
        self._written = len(self.known)

    @property
    def runs(self) -> list[dict]:
        return [line for line in read_lines(self._runs) if line["gemm"] == self.shape]

    def write_times(self) -> None:
        with self._times.open("a") as file:
            for timed in itertools.islice(self.known.values(), self._written, None):
                file.write(json.dumps({"state": timed.state, "seconds": timed.seconds}) + "\n")
        self._written = len(self.known)

    def add_run(self, run: dict) -> None:
        with self._runs.open("a") as file:
            file.write(json.dumps({"gemm": self.shape, **run}) + "\n")


def search(given: argparse.Namespace) -> None:
    for shape in given.shapes:
        kept = Kept(given.out, shape)
        done = {(run["strategy"], run["seed"]) for run in kept.runs}
        m, n, k = map(int, shape.split(","))
        with gemm_measurer(local_profile(), m, n, k, kept.known) as measure:
            for seed, name in itertools.product(range(given.repeats), strategies(shape, given)):
                if (name, seed) not in done:
                    one_run(kept, measure, gemm_space(m, n, k), name, seed, given.budget)
    print_searches(given)


def strategies(shape: str, given: argparse.Namespace) -> list[str]:
    return given.strategy or (list(STRATEGIES) if shape == CUBES[0] else COMPARED)


def made(name: str, space: TileSpace, seed: int) -> StateSearch:
    if name in EXCHANGES:
        return GreedyBestFirst(space, seed, exchanges=EXCHANGES[name])
    return make_search(name, space, seed)


def one_run(
    kept: Kept, measured: Measure, space: TileSpace, name: str, seed: int, amount: str
) -> None:
    budget = evaluations_of(amount, space.size)
    with tqdm(total=budget, desc=f"{kept.shape} {name} {seed}", mininterval=10) as progress:

        def measure(states: Sequence[State]) -> Sequence[Timed]:
            timed = measured(states)
            kept.write_times()
            progress.update(len(states))
            return timed

        trial = run_search(made(name, space, seed), measure, budget)
    assert trial.best is not None
    found = {"best_s": trial.best_s, "state": trial.best.state, "search_s": trial.search_s}
    kept.add_run({"strategy": name, "seed": seed, "evaluations": trial.evaluations, **found})


def print_searches(given: argparse.Namespace) -> None:
    rows = []
    names = given.strategy or list(STRATEGIES)
    for shape in given.shapes:
        kept = Kept(given.out, shape)
        gflop = 2e-9 * math.prod(map(int, shape.split(",")))
        cells = [shape, ""]
        for name in names:
            found = [run for run in kept.runs if run["strategy"] == name]
            cells[1] = str(found[0]["evaluations"]) if found else cells[1]
            rates = [gflop / run["best_s"] for run in found]
            cells.append(cell(rates) if rates else "-")
        rows.append(cells)
    sys.stdout.write("GFLOP/s of the best found: median (least to most), runs\n\n")
    sys.stdout.write(table(["M,N,K", "evaluations", *names], rows) + "\n")


def cell(rates: list[float]) -> str:
    return f"{median(rates):.1f} ({min(rates):.1f} to {max(rates):.1f}), {len(rates)}"


def libraries(given: argparse.Namespace) -> None:
    profile = local_profile()
    rows = []
    for shape in given.shapes:
        gemm = [int(extent) for extent in shape.split(",")]
        states = finalists(Kept(given.out, shape).known.values())
        state, timed = compare_matmul(gemm, states, profile, given.rounds)
        gflop = 2e-9 * math.prod(gemm)
        rates = [f"{1e3 * gflop / latency.median_ms:.1f}" for latency in timed.values()]
        faster = min(LIBRARIES, key=lambda name: timed[name].median_ms)
        against = "{:.3f} ({:.3f} to {:.3f})".format(*ratio(timed[faster], timed[SEARCHED]))
        rows.append([shape, str(list(state)), *rates, f"{profile.peak_gflops:.0f}", against])
    head = ["M,N,K", "state", "searched", "torch", "OpenBLAS", "peak", "of the faster library's"]
    sys.stdout.write(
        "GFLOP/s, medians of turns, and the ratio's 95 % interval\n\n" + table(head, rows)
    )
    sys.stdout.write("\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("do", choices=("search", "libraries"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shapes", nargs="+", default=[*CUBES, *BERT])
    parser.add_argument("--strategy", type=lambda text: text.split(","))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--budget", default=FRACTION, help="states, or a share of the space")
    parser.add_argument("--rounds", type=int, default=24)
    given = parser.parse_args()
    {"search": search, "libraries": libraries}[given.do](given)


if __name__ == "__main__":
    main()
