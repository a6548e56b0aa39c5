"""Networks in float32 and in int8, ours and other engines', in turns: one command for any machine.

    python benchmarks/quantised_everywhere.py --work DIR [--networks resnet50,bert_base]
                                              [--way quick] [--seeds 0,1,2] [--isa avx2]
    python benchmarks/quantised_everywhere.py --table

Each network is deployed by the public command, in a folder below DIR: as it is, and with
`--precision int8` for each seed, which draws the rows of the calibration, too. Then all engines
take turns, other engines on the network in float32 and on the one that was quantised. A line of
benchmarks/results/quantised/PROFILE.jsonl names the machine and the versions. What has a line is
passed over. Beside a time in int8 stands how far the engine is from exact integers, on the sample
of the bundle. `--isa` is as in benchmarks/everywhere.py. Nothing else may run.
"""

import argparse
import dataclasses
import itertools
import json
import os
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import everywhere
import numpy as np

from hetfeat.deploy.bench import compare
from hetfeat.deploy.peer_files import write_onnx
from hetfeat.deploy.precision import QUANTISED
from hetfeat.devices.probe import find_profile
from hetfeat.workloads.networks import load_network

RESULTS = everywhere.HERE / "results" / "quantised"
NETWORKS = everywhere.NETWORKS[:5]
PEERS = ("onnxruntime", "openvino")
OURS = "hetfeat"
FLOAT, INT8 = "float32", "int8"


def calibration_rows(inputs: list[Any], rows: int, seed: int) -> list[Any]:
    """Random rows of each input: normal numbers, or integers from what the input has."""
    draw = np.random.default_rng(seed)
    made = []
    for value in inputs:
        shape = (rows, *value.shape[1:])
        if np.issubdtype(value.dtype, np.floating):
            made.append(draw.standard_normal(shape).astype(value.dtype))
        else:
            made.append(draw.integers(value.min(), value.max() + 1, shape).astype(value.dtype))
    return made


def engines_of(network: Path, of_float: Path, of_int8: Path) -> dict[str, dict[str, Any]]:
    """Settings of each engine, by its name and precision."""
    inputs = sorted(map(str, of_int8.glob("sample_input_*.npy")))
    expected = sorted(map(str, of_int8.glob("sample_output*.npy")))
    quantised = of_int8.with_name(f"{of_int8.name}.journal") / QUANTISED
    engines = {
        f"{OURS}, {FLOAT}": {"engine": "bundle", "bundle": str(of_float)},
        f"{OURS}, {INT8}": {"engine": "bundle", "bundle": str(of_int8)},
    }
    for peer in PEERS:
        given = {"engine": peer, "inputs": inputs}
        engines[f"{peer}, {FLOAT}"] = {**given, "onnx": str(network)}
        engines[f"{peer}, {INT8}"] = {**given, "onnx": str(quantised), "expected": expected}
    return engines


def measured(
    network: str,
    seed: int,
    folder: Path,
    device: str,
    environment: dict[str, str],
    given: argparse.Namespace,
) -> dict[str, Any]:
    """Both reports of a network, and the latencies of all engines."""
    folder.mkdir(parents=True, exist_ok=True)
    loaded = load_network(network)
    of_float, of_int8 = folder / FLOAT, folder / f"{INT8}-{seed}"
    calibration = folder / f"calibration-{seed}.npz"
    np.savez(calibration, *calibration_rows(loaded.arrays(), given.rows, seed))
    write_onnx(loaded, folder / "network.onnx")
    asked = [network, *everywhere.WAYS[given.way]]
    in_int8 = [*asked, "--seed", str(seed), "--precision", INT8, "--calibration", str(calibration)]
    reports = {
        FLOAT: everywhere.deployed(of_float, device, asked, environment),
        INT8: everywhere.deployed(of_int8, device, in_int8, environment),
    }
    engines = engines_of(folder / "network.onnx", of_float, of_int8)
    threads = json.loads((of_int8 / "bundle.json").read_text())["threads"]
    os.environ.update(environment)
    found = compare(engines, threads, given.rounds)
    engines_ms = {name: each and dataclasses.asdict(each) for name, each in found.items()}
    return {"reports": reports, "engines": engines_ms}


def measure(given: argparse.Namespace) -> None:
    """Measures what has no line yet."""
    given.work.mkdir(parents=True, exist_ok=True)
    work = given.work.resolve()
    device = everywhere.device_of(work, given.isa, None)
    environment = everywhere.kept_to(given.isa)
    profile = find_profile(device)
    known = {
        (line["machine"]["profile"], line["network"], line["way"], line.get("seed", 0))
        for line in everywhere.lines_of(given.results)
    }
    for network, seed in itertools.product(given.networks, given.seeds):
        if (profile.name, network, given.way, seed) in known:
            continue
        folder = work / f"{profile.name}-{network.replace('/', '-')}-{given.way}"
        line = {
            "machine": everywhere.machine_of(profile, given.isa),
            "versions": {package: version(package) for package in everywhere.PACKAGES},
            "unix_s": round(time.time()),
            "network": network,
            "way": given.way,
            "seed": seed,
            **measured(network, seed, folder, device, environment, given),
        }
        given.results.mkdir(parents=True, exist_ok=True)
        with (given.results / f"{profile.name}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def in_turns(line: dict[str, Any], of: str, beside: str) -> list[float]:
    """The time of one engine over that of another, one ratio a turn."""
    engines = line["engines"]
    turns = zip(engines[of]["turns_ms"], engines[beside]["turns_ms"], strict=True)
    return [one / other for one, other in turns]


def ratio(line: dict[str, Any], beside: str) -> str:
    """The median of our int8 over another engine, and the least and most of a turn."""
    if line["engines"][beside] is None:
        return "does not run"
    found = in_turns(line, f"{OURS}, {INT8}", beside)
    return f"{np.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def ours_ms(line: dict[str, Any]) -> float:
    """Milliseconds of our int8."""
    return float(line["engines"][f"{OURS}, {INT8}"]["median_ms"])


def peer_ratio(line: dict[str, Any], peer: str) -> str:
    """The same beside a peer in int8, with how far that is from exact integers."""
    if line["machine"]["restricted_to"] and peer not in everywhere.KEPT_TO_ISA:
        return "not kept to it"
    name = f"{peer}, {INT8}"
    error = (line["engines"][name] or {}).get("error")
    off = "" if error is None else ", exact" if error == 0 else f", off by {error:.2g}"
    return ratio(line, name) + off


def table(lines: list[dict[str, Any]]) -> str:
    """Our int8 in milliseconds, and over our float32 and each peer's int8."""
    head = ["machine", "network", "way", "our int8, ms", "of our float32"]
    head += [f"of {peer} in int8" for peer in PEERS]
    rows = [
        [
            line["machine"]["profile"],
            line["network"],
            line["way"],
            f"{ours_ms(line):.2f}",
            ratio(line, f"{OURS}, {FLOAT}"),
            *(peer_ratio(line, peer) for peer in PEERS),
        ]
        for line in lines
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--networks", type=lambda text: text.split(","), default=[*NETWORKS])
    options.add_argument("--way", choices=everywhere.WAYS, default="one-shot")
    options.add_argument("--isa", choices=everywhere.ONEDNN_NAMES)
    options.add_argument("--rows", type=int, default=8, help="of calibration; 8")
    options.add_argument("--rounds", type=int, default=8, help="turns of each engine; 8")
    options.add_argument("--seeds", type=everywhere.numbers, default=[0])
    options.add_argument("--work", type=Path, help="folder of bundles")
    options.add_argument("--results", type=Path, default=RESULTS)
    options.add_argument("--table", action="store_true")
    given = options.parse_args()
    if given.table:
        print(table(everywhere.lines_of(given.results)))
    elif given.work is None:
        options.error("no --work; name a folder for bundles")
    else:
        measure(given)


if __name__ == "__main__":
    main()
