"""Searches on recorded spaces: how near to the optimum, and how soon, cold and warmed.

    python benchmarks/search.py --data ../shared/data [--repeats 20] [--out search.jsonl]

Each run of a search is a line of the results file; runs that are in it are not made again, so that
the same command goes on after an interrupt. Searches see one run of a space's recording; what they
choose is timed again in the others. Prints Markdown; docs/experiments holds its last run.
"""

import argparse
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy and torch: many small operations

import numpy as np
from tqdm import tqdm

from hetfeat.dataset.files import end_torn_line, json_lines
from hetfeat.dataset.importers.kernel_tuner import read_recording
from hetfeat.search.base import Timed
from hetfeat.search.prior import Prior
from hetfeat.search.recorded import RecordedSpace
from hetfeat.search.runner import Trial, run_search
from hetfeat.search.strategies import STRATEGIES
from hetfeat.search.warm_start import model_prior, recorded_prior, warmed_search

BUDGETS = (100, 300, 900)
UCI_BUDGET = 242
"""0.1 % of UCI SGEMM; of the others it is under 20 evaluations, which say little."""
NEAR = 0.05
WARMED = ("gbfs", "surrogate")
MODEL, MEASURED = "a model of ", 300
"""A source that a model was trained on, instead of all that it recorded, and on how much of it."""
# The settings of `surrogate` were chosen on Titan X, P100, 2070 S, conv A4000, conv W6600 and UCI
# SGEMM, mostly with other seeds.

RUNS = {
    "V100": "V100",
    "P100": "P100",
    "1080 Ti": "GTX_1080Ti",
    "Titan X": "GTX_Titan_X",
    "2070 S": "RTX_2070_SUPER",
    "Titan RTX": "TITAN_RTX",
}
FILES = {
    **{name: f"gemm_spaces/GEMM_{file}_processed_run1.json.gz" for name, file in RUNS.items()},
    "2080 Ti": "gemm_spaces/hub/RTX_2080_Ti.json.gz",
    "UCI SGEMM": "gemm_spaces/uci_sgemm/sgemm_product_dataset.zip",
    **{f"conv {name}": f"conv_spaces/{name}.json.gz" for name in ("A4000", "A6000", "W6600")},
}
GEMM = [*RUNS, "2080 Ti"]
CONV = [name for name in FILES if name.startswith("conv")]


@dataclass(frozen=True)
class Replayed:
    """A space as searches see it, and the same configurations timed at other times."""

    seen: RecordedSpace
    again: list[RecordedSpace]

    def excess(self, best: Timed) -> float:
        return best.seconds / self.seen.optimum_s - 1

    def excess_again(self, best: Timed) -> float:
        """Median over other runs of the excess over their own optimum."""
        times = [(space.time_s(best.state), space.optimum_s) for space in self.again]
        return float(np.median([time / optimum - 1 if time else np.nan for time, optimum in times]))


@cache
def replayed(data: Path, name: str) -> Replayed:
    recording = read_recording(data / FILES[name])
    if name in RUNS:
        others = [data / FILES[name].replace("run1", f"run{number}") for number in (2, 3)]
        again = [RecordedSpace(read_recording(path)) for path in others]
        return Replayed(RecordedSpace(recording), again)
    if name == "UCI SGEMM":
        again = [RecordedSpace(recording, slice(run, run + 1)) for run in (1, 2, 3)]
        return Replayed(RecordedSpace(recording, slice(0, 1)), again)
    halves = slice(0, None, 2), slice(1, None, 2)  # of 32 timings in a row
    return Replayed(RecordedSpace(recording, halves[0]), [RecordedSpace(recording, halves[1])])


def budgets_of(name: str) -> tuple[int, ...]:
    return tuple(sorted({*BUDGETS, UCI_BUDGET})) if name == "UCI SGEMM" else BUDGETS


def one_run(data: Path, name: str, strategy: str, source: str | None, seed: int) -> dict[str, Any]:
    """A line of the results. Warmed runs end near the optimum, cold ones at the largest budget."""
    space = replayed(data, name)
    prior = prior_of(data, source, space.seen, seed) if source else None
    search = warmed_search(strategy, space.seen, seed, prior)

    def near(trial: Trial) -> bool:
        return bool(source and trial.best and space.excess(trial.best) <= NEAR)

    trial = run_search(search, space.seen.measure, max(BUDGETS), near)
    reached = [b is not None and space.excess(b) <= NEAR for b in trial.bests]
    line: dict[str, Any] = {
        "space": name,
        "strategy": strategy,
        "source": source,
        "seed": seed,
        "near": reached.index(True) + 1 if True in reached else None,
        "search_s": round(trial.search_s, 3),
    }
    if source is None:
        bests = {budget: trial.bests[budget - 1] for budget in budgets_of(name)}
        line["excess"] = {budget: best and space.excess(best) for budget, best in bests.items()}
        line["again"] = {
            budget: best and space.excess_again(best) for budget, best in bests.items()
        }
    return line


def prior_of(data: Path, source: str, space: RecordedSpace, seed: int) -> Prior:
    recorded = replayed(data, source.removeprefix(MODEL)).seen
    if source.startswith(MODEL):
        return model_prior(recorded, space, MEASURED, seed)
    return recorded_prior(recorded, space)


def wanted(options: argparse.Namespace) -> Iterator[tuple[str, str, str | None, int]]:
    """Space, strategy, source and seed of every run; seed after seed, so that a part says much."""
    pairs = [*itertools.permutations(GEMM, 2), *itertools.permutations(CONV, 2)]
    for seed, strategy in itertools.product(range(options.repeats), options.strategy):
        yield from ((name, strategy, None, seed) for name in FILES)
        if strategy in WARMED:
            yield from ((target, strategy, source, seed) for source, target in pairs)
            yield from ((target, strategy, MODEL + source, seed) for source, target in pairs)


def key(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["space"], line["strategy"], line["source"], line["seed"]


def figure(values: Iterable[float | None], scale: float = 100.0) -> str:
    """Median and quartiles; what never came counts as infinite."""
    known = [np.inf if value is None else value * scale for value in values]
    low, median, high = np.percentile(known, [25, 50, 75], method="nearest")
    return f"{median:.1f} ({low:.1f}-{high:.1f})"


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def recorded_tables(lines: list[dict[str, Any]], strategies: list[str]) -> Iterator[str]:
    cold = [line for line in lines if line["source"] is None]
    for what, title in (("excess", "in the run searched"), ("again", "timed again")):
        rows = []
        for name in FILES:
            for budget in budgets_of(name):
                cells = [name, str(budget)]
                for strategy in strategies:
                    mine = [x for x in cold if (x["space"], x["strategy"]) == (name, strategy)]
                    cells.append(figure(x[what][str(budget)] for x in mine) if mine else "-")
                rows.append(cells)
        yield f"Excess over the optimum in %, {title}: median (quartiles)"
        yield table(["space", "evaluations", *strategies], rows)
    rows = []
    for strategy in strategies:
        times = [line["search_s"] for line in cold if line["strategy"] == strategy]
        rows.append([strategy, str(len(times)), figure(times, 1.0) if times else "-"])
    yield f"The searches' own CPU time for {max(BUDGETS)} evaluations, s"
    yield table(["strategy", "runs", "s"], rows)


def transfer_tables(lines: list[dict[str, Any]]) -> Iterator[str]:
    for strategy, names, kind in itertools.product(WARMED, (GEMM, CONV), ("", MODEL)):
        sources = [kind + name for name in names]
        rows = []
        for target in names:
            mine = [x for x in lines if (x["space"], x["strategy"]) == (target, strategy)]
            near = [[x["near"] for x in mine if x["source"] == s] for s in (None, *sources)]
            rows.append([target, *(figure(found, 1.0) if found else "-" for found in near)])
        yield f"Evaluations to be within {NEAR:.0%} of the optimum, `{strategy}`"
        yield table(["target", "cold", *(f"from {source}" for source in sources)], rows)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The runs made so far; an interrupt may have torn the last line."""
    end_torn_line(path)
    return list(json_lines(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--strategy", type=lambda text: text.split(","), default=list(STRATEGIES))
    parser.add_argument("--out", type=Path, default=Path("search.jsonl"))
    options = parser.parse_args()
    done = {key(line) for line in read_lines(options.out)}
    todo = [run for run in wanted(options) if run not in done]
    with options.out.open("a") as file:
        for run in tqdm(todo, file=sys.stderr, mininterval=10):
            file.write(json.dumps(one_run(options.data, *run)) + "\n")
            file.flush()
    lines = [line for line in read_lines(options.out) if line["seed"] < options.repeats]
    for part in (*recorded_tables(lines, options.strategy), *transfer_tables(lines)):
        sys.stdout.write(part + "\n\n")


if __name__ == "__main__":
    main()
