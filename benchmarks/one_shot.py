"""A network that nobody tuned for: the cost model alone picks its programs (`--trials 0`).

    python benchmarks/one_shot.py TUNED [--rounds 24] --out DIR

TUNED is a bundle of `hetfeat deploy`. Its network is deployed to DIR without a measured program,
with the cost model that is staged for this machine, and both bundles take turns. Prints the
seconds from the command's start until the new one had given right outputs, and the ratio of
latencies with its 95 % interval. Nothing else may run.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ratios import ratio

from hetfeat.deploy.bench import compare
from hetfeat.deploy.bundle import read_manifest

DOOR = Path(__file__).resolve().parent.parent / "mlproject.py"
VERIFIED = "verified"
"""Begins the line that `hetfeat deploy` logs once the bundle has run and was right."""


def deployed(network: str, out: Path) -> float:
    """Deploys; returns the seconds until the bundle was verified."""
    line = [sys.executable, str(DOOR), "deploy", "--network", network]
    started = time.monotonic()
    seconds = 0.0
    with subprocess.Popen(
        [*line, "--trials", "0", "--out", str(out)], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for told in process.stderr:
            sys.stderr.write(told)
            if VERIFIED in told:
                seconds = time.monotonic() - started
    if process.returncode or not seconds:
        raise SystemExit(
            f"deploy ended with {process.returncode} and told of no bundle that it had verified;"
            " read its output above, and choose a new --out"
        )
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tuned", type=Path)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    manifest = read_manifest(given.tuned)
    seconds = deployed(manifest["request"]["network"], given.out)
    engines = {
        name: {"engine": "bundle", "bundle": str(bundle)}
        for name, bundle in (("one-shot", given.out), ("tuned", given.tuned))
    }
    timed = compare(engines, manifest["threads"], given.rounds)
    one_shot, tuned = timed["one-shot"], timed["tuned"]
    assert one_shot is not None and tuned is not None
    share = "{:.3f} ({:.3f} to {:.3f})".format(*ratio(one_shot, tuned))
    print(f"ready after {seconds:.1f} s; {one_shot.median_ms:.2f} ms, tuned {tuned.median_ms:.2f}")
    print(f"one-shot / tuned {share}")


if __name__ == "__main__":
    main()
