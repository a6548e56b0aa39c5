"""How fast networks become on this machine beside other engines: one command for any machine.

    python benchmarks/everywhere.py [--networks resnet50,bert_base] [--ways one-shot,quick,standard]
                                    [--seeds 0,1,2] [--isa avx2] [--threads 1] [--model NAME]
                                    --work DIR
    python benchmarks/everywhere.py --table

Each network is deployed in each way by the public command, in a folder below DIR. Its report is a
line of benchmarks/results/everywhere/PROFILE.jsonl, which names the machine and the versions. What
has a line is passed over, and what was interrupted goes on: run it again. `--isa avx2` on a
machine with AVX-512 compiles for AVX2, and keeps torch and OpenVINO to it; ONNX Runtime cannot be
kept, and does not count there. `--table` prints all lines as a table. Nothing else may run.
"""

import argparse
import itertools
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hetfeat.devices import host
from hetfeat.devices.probe import find_profile
from hetfeat.devices.profile import DeviceProfile

HERE = Path(__file__).resolve().parent
DOOR = HERE.parent / "mlproject.py"
RESULTS = HERE / "results" / "everywhere"
NETWORKS = (
    "resnet50",
    "mobilenet_v3_large",
    "inception_v3",
    "bert_base",
    "vit_b_16",
    "efficientnet_b0",
    "densenet121",
)
WAYS = {
    "one-shot": ("--trials", "0"),
    "quick": ("--effort", "quick"),
    "standard": ("--effort", "standard"),
}
PACKAGES = ("apache-tvm", "torch", "onnxruntime", "openvino", "hetfeat")
OF_A_PLACE = ("bundle", "bundle_version", "run_id")
"""What a report says of the folder and the registry, which no line repeats."""
KEPT_TO_ISA = ("torch", "openvino")
"""Engines that `ONEDNN_MAX_CPU_ISA` keeps to narrower vectors."""
ONEDNN_NAMES = {"avx2": "AVX2", "sse42": "SSE41"}


def numbers(text: str) -> list[int]:
    """Numbers that commas divide."""
    return [int(number) for number in text.split(",")]


def device_of(work: Path, isa: str | None, threads: int | None) -> str:
    """This machine as `local`, or the profile of a part of it, probed once."""
    if isa is None and threads is None:
        return "local"
    path = work / f"{isa or 'widest'}-{threads or 'all'}.yaml"
    if not path.is_file():
        given = {"--isa": isa, "--threads": threads, "--out": path}
        options = [str(part) for pair in given.items() if pair[1] is not None for part in pair]
        subprocess.run([sys.executable, DOOR, "devices", "probe", *options], cwd=work, check=True)
    return str(path)


def kept_to(isa: str | None) -> dict[str, str]:
    """The environment that keeps `KEPT_TO_ISA` to an instruction set."""
    name = ONEDNN_NAMES.get(isa or "")
    return {"ONEDNN_MAX_CPU_ISA": name} if name else {}


def deployed(out: Path, device: str, asked: list[str], environment: dict[str, str]) -> Any:
    """The report of a deployment to a folder, and the seconds that its command took."""
    line = [sys.executable, DOOR, "deploy", *asked, "--device", device, "--out", out, "--json"]
    started_s = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which ends the deployment, too
    done = subprocess.run(
        line,
        cwd=out.parent,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    report = {key: value for key, value in json.loads(done.stdout).items() if key not in OF_A_PLACE}
    return report | {"command_s": round(time.monotonic() - started_s, 1)}


def machine_of(profile: DeviceProfile, isa: str | None) -> dict[str, Any]:
    """What a line says of the machine."""
    return {
        "profile": profile.name,
        "cpu": host.cpu_model(),
        "cores": os.cpu_count(),
        "threads": profile.threads,
        "vector_bytes": profile.vector_unit_bytes,
        "restricted_to": isa,
        "peak_gflops": profile.peak_gflops,
        "bandwidth_gb_s": profile.bandwidth_gb_s,
        "system": platform.platform(),
    }


def lines_of(results: Path) -> list[dict[str, Any]]:
    """All lines, in the order of their files."""
    return [
        json.loads(line)
        for path in sorted(results.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def measure(given: argparse.Namespace) -> None:
    """Deploys what has no line yet."""
    given.work.mkdir(parents=True, exist_ok=True)
    work = given.work.resolve()
    device = device_of(work, given.isa, given.threads)
    profile = find_profile(device)
    known = {
        (line["machine"]["profile"], line["network"], line["way"], line.get("seed", 0))
        for line in lines_of(given.results)
    }
    environment = kept_to(given.isa)
    options = ["--model", given.model] if given.model else []
    path = given.results / f"{profile.name}.jsonl"
    for network, way, seed in itertools.product(given.networks, given.ways, given.seeds):
        if (profile.name, network, way, seed) in known:
            continue
        out = work / f"{profile.name}-{network.replace('/', '-')}-{way}-{seed}"
        asked = [network, *WAYS[way], "--seed", str(seed), *options]
        line = {
            "machine": machine_of(profile, given.isa),
            "versions": {package: version(package) for package in PACKAGES},
            "unix_s": round(time.time()),
            "network": network,
            "way": way,
            "seed": seed,
            "report": deployed(out, device, asked, environment),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def share_of_fastest(line: dict[str, Any]) -> float | None:
    """The time of the fastest peer that this one takes; None where no peer counts."""
    report = line["report"]
    kept = KEPT_TO_ISA if line["machine"]["restricted_to"] else report["peers_ms"]
    peers = [ms for peer, ms in report["peers_ms"].items() if ms and peer in kept]
    return report["latency_ms"] / min(peers) if peers else None


def leaked(line: dict[str, Any]) -> str:
    """What the model had seen of the network on this machine, if anything."""
    count = line["report"]["leaked_records"]
    return f"{count} leaked" if count else ""


def cell(line: dict[str, Any]) -> str:
    """The share of the fastest peer's time, the seconds it took, and what it had seen."""
    report, share = line["report"], share_of_fastest(line)
    if share is None:
        return f"{report['latency_ms']:.2f} ms, no peer"
    notes = [f"{report['command_s']:.0f} s", leaked(line)]
    return f"{share:.2f} ({', '.join(filter(None, notes))})"


def table(lines: list[dict[str, Any]]) -> str:
    """Of the fastest peer's time, and the seconds of the whole command."""
    rows: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for line in lines:
        rows[line["machine"]["profile"], line["network"]][line["way"]] = cell(line)
    head = ["machine", "network", *WAYS]
    body = [[*key, *(cells.get(way, "not run") for way in WAYS)] for key, cells in rows.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--networks", type=lambda text: text.split(","), default=[*NETWORKS])
    options.add_argument("--ways", type=lambda text: text.split(","), default=[*WAYS])
    options.add_argument("--seeds", type=numbers, default=[0])
    options.add_argument("--isa", choices=ONEDNN_NAMES)
    options.add_argument("--threads", type=int)
    options.add_argument("--model", help="by default the staged or the packaged one")
    options.add_argument("--work", type=Path, help="folder of bundles and profiles")
    options.add_argument("--results", type=Path, default=RESULTS)
    options.add_argument("--table", action="store_true")
    given = options.parse_args()
    if unknown := set(given.ways) - set(WAYS):
        options.error(f"unknown ways {', '.join(sorted(unknown))}; choose of {', '.join(WAYS)}")
    if given.table:
        print(table(lines_of(given.results)))
    elif given.work is None:
        options.error("no --work; name a folder for bundles and profiles")
    else:
        measure(given)


if __name__ == "__main__":
    main()
