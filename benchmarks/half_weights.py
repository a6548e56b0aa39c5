"""What half precision is worth to a CPU: a network in each precision, in turns.

    python benchmarks/half_weights.py --network bert_base [--device PROFILE.yaml] --work DIR

Nothing is measured while they are made (`--trials 0`). `--network one_row` is three products of
one row with 4096 x 4096 weights. A second run takes what lies in DIR. Nothing else may run.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ratios import ratio

import hetfeat
from hetfeat.deploy.bench import compare
from hetfeat.devices.probe import find_profile
from hetfeat.workloads.network import Network

PRECISIONS = ("float32", "bfloat16", "float16")


def network_of(name: str) -> Network:
    """A network by its name, or products of one row."""
    if name != "one_row":
        return hetfeat.load_network(name)
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Linear(4096, 4096) for _ in range(3)]
    return hetfeat.load_network(torch.nn.Sequential(*layers), torch.randn(1, 4096))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", required=True)
    parser.add_argument("--device", default="local")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=12)
    given = parser.parse_args()
    profile, network = find_profile(given.device), network_of(given.network)
    engines, facts = {}, {}
    for precision in PRECISIONS:
        out = given.work / f"{profile.name}-{given.network}-{precision}"
        made = hetfeat.deploy_network(network, profile, trials=0, precision=precision, out=out)
        size = sum(file.stat().st_size for file in out.iterdir() if file.is_file())
        engines[precision] = {"engine": "bundle", "bundle": str(out), "batch": 1}
        facts[precision] = {"mb": round(size / 1e6, 1), "error": made.report.max_abs_error}
    latencies = compare(engines, profile.threads, given.rounds)
    line = {"network": given.network, "device": profile.name, "mcpu": profile.target["mcpu"]}
    for precision, latency in latencies.items():
        facts[precision]["ms"] = round(latency.median_ms, 2)
        facts[precision]["of_float32"] = ratio(latency, latencies["float32"])
    print(json.dumps(line | facts))


if __name__ == "__main__":
    main()
