"""A network in float32 and in int8, ours and other engines', in turns of one run.

    python benchmarks/quantised.py --network NET.onnx --float BUNDLE --int8 BUNDLE [--rounds 8]

`--int8` is a bundle of `hetfeat deploy NET.onnx --precision int8`, whose journal has the network
that the other engines run, too; `--float` one of `hetfeat deploy NET.onnx`. Beside the time in int8
stands how far an engine's outputs are from exact integers, on the sample of the bundle.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hetfeat.deploy.bench import compare
from hetfeat.deploy.precision import QUANTISED

PEERS = ("onnxruntime", "openvino")


def engines_of(network: Path, of_float: Path, of_int8: Path, quantised: Path) -> dict[str, dict]:
    """Settings of each engine, by its name and precision."""
    inputs = sorted(map(str, of_int8.glob("sample_input_*.npy")))
    expected = sorted(map(str, of_int8.glob("sample_output*.npy")))
    engines = {
        "hetfeat, float32": {"engine": "bundle", "bundle": str(of_float)},
        "hetfeat, int8": {"engine": "bundle", "bundle": str(of_int8)},
    }
    for peer in PEERS:
        given = {"engine": peer, "inputs": inputs}
        engines[f"{peer}, float32"] = {**given, "onnx": str(network)}
        engines[f"{peer}, int8"] = {**given, "onnx": str(quantised), "expected": expected}
    return engines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", type=Path, required=True)
    parser.add_argument("--float", type=Path, required=True, dest="of_float")
    parser.add_argument("--int8", type=Path, required=True)
    parser.add_argument("--quantised", type=Path, help="default: that of the journal of --int8")
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    quantised = given.quantised or given.int8.with_name(f"{given.int8.name}.journal") / QUANTISED
    threads = json.loads((given.int8 / "bundle.json").read_text())["threads"]
    engines = engines_of(given.network, given.of_float, given.int8, quantised)
    found = compare(engines, threads, given.rounds)
    float_ms = found["hetfeat, float32"].median_ms
    print("| engine | ms | of our float32 | off by at most |\n| --- | --- | --- | --- |")
    for name, latency in found.items():
        if latency is None:
            print(f"| {name} | does not run | | |")
            continue
        off = "" if latency.error is None else f"{latency.error:.2g}"
        share = latency.median_ms / float_ms
        low, high = latency.low_ms, latency.high_ms
        print(
            f"| {name} | {latency.median_ms:.1f} ({low:.1f} to {high:.1f}) | {share:.2f} | {off} |"
        )


if __name__ == "__main__":
    main()
