"""Searches as the network tuner's, at equal trials: a network tuned with each, then in turns.

    python benchmarks/network_search.py --out DIR [--network resnet50] [--trials 500]

`evolution` runs once with the cost model in production, if there is one, and once without; the
others ask no model. A bundle that is in DIR already is not made again. Prints Markdown;
docs/search.md holds its last run.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ratios import ratio

from hetfeat.deploy.bench import Latency, compare
from hetfeat.deploy.bundle import read_manifest

RUNS = {
    "evolution, cost model": ("evolution", None),
    "evolution": ("evolution", "none"),
    "gbfs": ("gbfs", "none"),
    "na2c": ("na2c", "none"),
    "surrogate": ("surrogate", "none"),
}


def deployed(name: str, given: argparse.Namespace) -> dict[str, object]:
    """What `hetfeat deploy` reports of one run."""
    search, model = RUNS[name]
    report = given.out / f"{name}.json"
    if not report.is_file():
        command = [sys.executable, "-m", "mlproject", "deploy", "--json"]
        command += ["--network", given.network, "--search", search, "--trials", str(given.trials)]
        command += ["--effort", "standard", "--out", str(given.out / name)]
        command += ["--model", model] if model else []
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        report.write_text(done.stdout)
    return json.loads(report.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--network", default="resnet50")
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=24)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    reports = {name: deployed(name, given) for name in RUNS}
    bundles = {name: given.out / name for name in RUNS}
    settings = {name: {"engine": "bundle", "bundle": str(path)} for name, path in bundles.items()}
    threads = read_manifest(next(iter(bundles.values())))["threads"]
    timed = compare(settings, threads, given.rounds)
    first = timed[next(iter(RUNS))]
    print("| search | trials | tuning, s | latency, ms | to the first, 95 % interval |")
    print("| --- | --- | --- | --- | --- |")
    for name, report in reports.items():
        latency = timed[name]
        assert isinstance(latency, Latency) and isinstance(first, Latency)
        print(
            f"| {name} | {report['trials']} | {report['tuning_s']:.0f} | {latency.median_ms:.2f} | "
            "{:.3f} ({:.3f} to {:.3f}) |".format(*ratio(latency, first))
        )


if __name__ == "__main__":
    main()
