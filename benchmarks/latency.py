"""Tuned networks beside torch, torch.compile, ONNX Runtime and OpenVINO, in turns.

    python benchmarks/latency.py BUNDLE [BUNDLE ...] [--rounds 24] [--peers torch,openvino]
                                 [--beside BUNDLE]

Batch 1, each engine in a process of its own, equal threads, a pause before each turn. Prints a row
of Markdown for each bundle of `hetfeat deploy`: medians, and the tuned network's share of each
peer's time with its 95 % interval. `--peers "" --beside OTHER` times two bundles of one network
alone. `kernels.py` has the roofline. Nothing else may run.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ratios import ratio

from hetfeat.deploy.bench import MORE_PEERS, PEERS, compare
from hetfeat.deploy.bundle import read_manifest

ENGINES = (*PEERS, *MORE_PEERS)


def row(bundle: Path, rounds: int, peers: list[str], beside: Path | None) -> list[str]:
    manifest = read_manifest(bundle)
    request = manifest["request"]
    settings = {"network": request["network"], "batch": 1, "seed": request["seed"]}
    engines = {"tuned": {"engine": "bundle", "bundle": str(bundle)}}
    engines |= {peer: {"engine": peer, **settings} for peer in peers}
    if beside is not None:
        engines["beside"] = {"engine": "bundle", "bundle": str(beside)}
    timed = compare(engines, manifest["threads"], rounds)
    tuned = timed["tuned"]
    assert tuned is not None
    cells = [request["network"], f"{tuned.median_ms:.2f}"]
    for peer in list(engines)[1:]:
        latency = timed[peer]
        if latency is None:
            cells.append("-")
        else:
            share = "{:.3f} ({:.3f} to {:.3f})".format(*ratio(tuned, latency))
            cells.append(f"{latency.median_ms:.2f}: {share}")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--peers", default=",".join(ENGINES), help="names, or none of them")
    parser.add_argument("--beside", type=Path, help="another bundle of the network")
    given = parser.parse_args()
    peers = [peer for peer in given.peers.split(",") if peer]
    others = [*peers, "beside"] if given.beside else peers
    head = ["network", "tuned, ms", *(f"{peer}, ms: tuned / it" for peer in others)]
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for bundle in given.bundle:
        print(f"| {' | '.join(row(bundle, given.rounds, peers, given.beside))} |", flush=True)


if __name__ == "__main__":
    main()
