"""Searches as the network tuner's, at equal trials: a network tuned with each, then in turns.

    python benchmarks/network_search.py --out DIR [--network resnet50] [--trials 500] [--seeds 3]

`evolution` runs once with the cost model in production, if there is one, and once without; the
others ask no model. The bundles of one seed are timed together. One that is in DIR already is not
made again. Prints Markdown; docs/experiments holds its last run.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ratios import ratio
from search import table

from hetfeat.deploy.bench import compare
from hetfeat.deploy.bundle import read_manifest

RUNS = {
    "evolution, cost model": ("evolution", None),
    "evolution": ("evolution", "none"),
    "gbfs": ("gbfs", "none"),
    "na2c": ("na2c", "none"),
    "surrogate": ("surrogate", "none"),
}


def deployed(name: str, seed: int, given: argparse.Namespace) -> dict[str, object]:
    """What `hetfeat deploy` reports of one run."""
    search, model = RUNS[name]
    bundle = bundle_of(name, seed, given)
    report = bundle.with_suffix(".json")
    if not report.is_file():
        command = [sys.executable, "-m", "mlproject", "deploy", "--json"]
        command += ["--network", given.network, "--search", search, "--trials", str(given.trials)]
        command += ["--effort", "standard", "--seed", str(seed), "--out", str(bundle)]
        command += ["--model", model] if model else []
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        report.write_text(done.stdout)
    return json.loads(report.read_text())


def bundle_of(name: str, seed: int, given: argparse.Namespace) -> Path:
    return given.out / f"{name}-{seed}"


def rows(seed: int, given: argparse.Namespace) -> Iterator[list[str]]:
    """A row for each search of one seed, their bundles timed in turns."""
    reports = {name: deployed(name, seed, given) for name in RUNS}
    bundles = {name: bundle_of(name, seed, given) for name in RUNS}
    settings = {name: {"engine": "bundle", "bundle": str(path)} for name, path in bundles.items()}
    threads = read_manifest(next(iter(bundles.values())))["threads"]
    timed = compare(settings, threads, given.rounds)
    first = timed[next(iter(RUNS))]
    for name, report in reports.items():
        latency = timed[name]
        assert latency and first
        against = "{:.3f} ({:.3f} to {:.3f})".format(*ratio(latency, first))
        tuned = [str(report["trials"]), f"{report['tuning_s']:.0f}"]
        yield [name, str(seed), *tuned, f"{latency.median_ms:.2f}", against]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--network", default="resnet50")
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=24)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found = [row for seed in range(given.seeds) for row in rows(seed, given)]
    head = ["search", "seed", "programs", "tuning, s", "latency, ms", "to the first, 95 % interval"]
    sys.stdout.write(table(head, found) + "\n")


if __name__ == "__main__":
    main()
