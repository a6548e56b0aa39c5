"""Writes networks in int8 as ONNX files, for `hetfeat collect` to measure programs of.

    python tools/quantised_networks.py OUT NETWORK [NETWORK ...] [--rows 8] [--seed 0]

Each becomes OUT/NETWORK_int8.onnx, quantised as `hetfeat deploy --precision int8` does it, with
random rows.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import quantised_everywhere

from hetfeat.deploy.calibration import of_arrays
from hetfeat.deploy.peer_files import write_onnx
from hetfeat.deploy.precision import INT8, slug_in
from hetfeat.deploy.quantise import quantised_network
from hetfeat.workloads.networks import load_network, network_slug


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.networks:
        network = load_network(name)
        rows = quantised_everywhere.calibration_rows(network.arrays(), given.rows, given.seed)
        made, accuracy = quantised_network(network, of_arrays(rows, "random rows"))
        path = given.out / f"{slug_in(network_slug(name), INT8)}.onnx"
        write_onnx(made, path)
        print(f"{path}: {accuracy.described()}")


if __name__ == "__main__":
    main()
