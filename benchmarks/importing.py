"""Importing foreign records: what becomes of every public file, how fast, and in how much memory.

    python benchmarks/importing.py table [--data ../shared/data]
    python benchmarks/importing.py speed [--data ../shared/data] [--repeats 5]
    python benchmarks/importing.py memory [--lines 100000]
    python benchmarks/importing.py features

`table` imports the files of `SOURCES` into one store and prints a Markdown row a source; `speed`
repeats the largest source; `memory` imports generated lines and ten times as many, each in a
process of its own; `features` turns traces into numbers. Rates are by CPU time, of one thread.
docs/experiments holds the last run.
"""

import argparse
import gzip
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

SPEED = "roller_ansor"
ENOUGH = 4000
"""Lines of a source whose rate is worth printing."""
BENNU = "bennu_ansor/microkernels"
SOURCES = [
    # Format, device, patterns; the first file of a device decides which hardware it is.
    ("ansor", "v100", ["roller_ansor/v100", "roller_ansor/v100_extra_matmul"]),
    ("ansor", "k80", ["roller_ansor/k80"]),
    ("ansor", "xeon-8358", ["xeon8358_ansor"]),
    ("ansor", "rtx-2080-ti", ["rtx2080ti_ansor"]),
    ("ansor", "bennu-x86-8c", ["bennu_ansor/cpu_*", "bennu_ansor/x86_*"]),
    (
        *("ansor", "bennu-x86-16c"),
        ["bennu_ansor/x86_resnet50_10k_droplet*", "bennu_ansor/x86_*_droplet*"],
    ),
    ("ansor", "bennu-a100", [f"{BENNU}/*__a100__log__a100_*", f"{BENNU}/ansor__log__a100*"]),
    ("ansor", "bennu-rtx-3080", [f"{BENNU}/*rtx3080*", f"{BENNU}/ansor__ansor_relu*"]),
    (
        *("ansor", "bennu-sm75"),
        [
            *("bennu_ansor/gpu_*", f"{BENNU}/*__log__reduce*", f"{BENNU}/*__test*"),
            f"{BENNU}/DpAnsor__log__ansor*",
        ],
    ),
    ("ansor", "t4", ["tlcbench_ansor"]),
    (
        *("ansor", "tvm-ci-cuda"),
        ["tvm_ci_ansor/conv2d*", "tvm_ci_ansor/*NHWC-B1.*", "tvm_ci_ansor/*cuda.hist[23]*"],
    ),
    (
        *("ansor", "tvm-ci-sm86"),
        ["tvm_ci_ansor/*cuda.json", "tvm_ci_ansor/*cuda.hist1*"],
    ),
    ("ansor", "tvm-ci-avx2-24c", ["tvm_ci_ansor/*llvm.hist1*"]),
    ("ansor", "tvm-ci-avx2-8c", ["tvm_ci_ansor/*llvm.hist2*"]),
    ("ansor", "tvm-ci-18c", ["tvm_ci_ansor/matmul.hist1*", "tvm_ci_ansor/matmul.json"]),
    ("ansor", "tvm-ci-6c", ["tvm_ci_ansor/sparse*"]),
    ("ansor", "tvm-ci-cpu", ["tvm_ci_ansor/matmul.hist[24]*"]),
    ("metaschedule", "zen4-avx512-2t", ["local_cpu/zen4-avx512-2t"]),
    ("metaschedule", "zen4-avx2-2t", ["local_cpu/zen4-avx2-2t"]),
    ("metaschedule", "zen4-sse42-2t", ["local_cpu/zen4-sse42-2t"]),
    ("metaschedule", "zen4-avx512-1t", ["local_cpu/zen4-avx512-1t"]),
    ("metaschedule", "nvidia-a100", ["metaschedule_legacy/a100_resnet34"]),
    ("metaschedule", "apple-metal", ["metaschedule_legacy/mlc_llm"]),
    ("kernel-tuner", "nvidia-v100", ["gemm_spaces/GEMM_V100*"]),
    ("kernel-tuner", "nvidia-p100", ["gemm_spaces/GEMM_P100*"]),
    ("kernel-tuner", "nvidia-gtx-1080-ti", ["gemm_spaces/GEMM_GTX_1080Ti*"]),
    ("kernel-tuner", "nvidia-gtx-titan-x", ["gemm_spaces/GEMM_GTX_Titan_X*"]),
    ("kernel-tuner", "nvidia-rtx-2070-super", ["gemm_spaces/GEMM_RTX_2070*"]),
    ("kernel-tuner", "nvidia-titan-rtx", ["gemm_spaces/GEMM_TITAN_RTX*"]),
    ("kernel-tuner", "nvidia-rtx-2080-ti", ["gemm_spaces/hub"]),
    ("kernel-tuner", "nvidia-rtx-a4000", ["conv_spaces/A4000*"]),
    ("kernel-tuner", "nvidia-rtx-a6000", ["conv_spaces/A6000*"]),
    ("kernel-tuner", "amd-radeon-pro-w6600", ["conv_spaces/W6600*"]),
    ("kernel-tuner", "nvidia-gtx-680", ["gemm_spaces/uci_sgemm"]),
]


def paths_of(data: Path, patterns: list[str]) -> list[Path]:
    """What the patterns name, each file once."""
    found = [path for pattern in patterns for path in sorted(data.glob(pattern))]
    if not found:
        raise SystemExit(f"'{data}' holds nothing like {patterns}; give the folder with --data")
    return list(dict.fromkeys(found))


def timed(format_name: str, device: str, paths: list[Path], out: Path) -> tuple[Any, float]:
    """Counts of an import, and its CPU time in seconds."""
    from hetfeat.dataset.importers.import_records import import_records

    start = time.process_time()
    return import_records(format_name, device, paths, out), time.process_time() - start


def table(data: Path) -> None:
    print("| source | device | read | kept | failed | skipped | duplicates | tasks | lines/s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    reasons = []
    with tempfile.TemporaryDirectory() as folder:
        for format_name, device, patterns in SOURCES:
            paths = paths_of(data, patterns)
            counts, seconds = timed(format_name, device, paths, Path(folder, "store"))
            found = counts.summary()
            figures = [found[key] for key in ("read", "kept", "failed", "skipped", "duplicates")]
            if figures[0] != sum(figures[1:]):
                raise SystemExit(f"the counts of {device} do not balance: {found}")
            shown = " | ".join(f"{n:,}" for n in [*figures, found["tasks"]])
            rate = f"{figures[0] / seconds:,.0f}" if figures[0] >= ENOUGH else ""
            print(f"| {patterns[0].partition('/')[0]} | {device} | {shown} | {rate} |")
            reasons += [f"- {device}: {n:,} {why}" for why, n in found["skipped_reasons"].items()]
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    print(f"\nThe store has {size / 1e6:.1f} MB. Skipped:\n", *reasons, sep="\n")


def speed(data: Path, repeats: int) -> None:
    paths = paths_of(data, [SPEED])
    rates = []
    for _ in range(repeats + 1):  # the first one imports modules, too
        with tempfile.TemporaryDirectory() as folder:
            counts, seconds = timed("ansor", "gpu", paths, Path(folder, "store"))
        rates.append(counts.read / seconds)
    print(f"{SPEED}, {counts.read:,} lines: ", end="")
    print_rates(rates[1:], "lines")


def memory(lines: int) -> None:
    import ansor_lines

    pattern = ansor_lines.log(2000, 0, ansor_lines.on_gpu)
    with tempfile.TemporaryDirectory() as folder:
        for part in range(10):
            tasks = range(part * lines, (part + 1) * lines, len(pattern))
            data = b"\n".join(
                line.replace(b", 64,", b", %d," % (64 + task), 1)
                for task in tasks
                for line in pattern
            )
            Path(folder, f"{part}.json.gz").write_bytes(gzip.compress(data, 1))
        files = sorted(Path(folder).glob("*.gz"))
        one, ten = (peak_mb(chosen, Path(folder, "store")) for chosen in (files[:1], files))
    print(f"{lines:,} lines: {one:.0f} MB; ten times as many: {ten:.0f} MB, {ten / one:.2f} times")


def peak_mb(files: list[Path], out: Path) -> float:
    """Peak resident memory of a process that imports files into a new store."""
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from hetfeat.dataset.importers.import_records import import_records\n"
        "import_records('ansor', 'gpu', [Path(p) for p in sys.argv[2:]], Path(sys.argv[1]))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n"
    )
    command = [sys.executable, "-c", code, f"{out}-{len(files)}", *map(str, files)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True, capture_output=True
    )
    return float(done.stdout)


def features(repeats: int) -> None:
    import ansor_lines

    import hetfeat.dataset.packaged
    from hetfeat.dataset.importers import ansor
    from hetfeat.dataset.store import RecordStore
    from hetfeat.features import trace

    (packaged,) = hetfeat.dataset.packaged.__path__
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        log.write_bytes(b"\n".join(ansor_lines.log(7000, 0, ansor_lines.on_gpu)))
        columns: dict[str, Any] = {
            "MetaSchedule": RecordStore.open(Path(packaged)).read(["trace"])["trace"],
            "Ansor": next(ansor.read([log], "gpu")).records["trace"],
        }
    views: list[Callable[[Any], Any]] = [trace.vectors, trace.sequences]
    for name, column in columns.items():
        for view in views:
            rates = []
            for _ in range(repeats):
                start = time.process_time()
                view(column)
                rates.append(len(column) / (time.process_time() - start))
            print(f"{name}, {len(column):,} traces, {view.__name__}: ", end="")
            print_rates(rates, "programs")


def print_rates(rates: list[float], unit: str) -> None:
    print(f"median {statistics.median(rates):,.0f} {unit}/s ", end="")
    print(f"({min(rates):,.0f} to {max(rates):,.0f}, {len(rates)} times)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["table", "speed", "memory", "features"])
    shared = os.environ.get("HETFEAT_SHARED_DATA") or ROOT.parent / "shared" / "data"
    parser.add_argument("--data", type=Path, default=shared)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--lines", type=int, default=100_000)
    given = parser.parse_args()
    if given.what == "table":
        table(given.data)
    elif given.what == "speed":
        speed(given.data, given.repeats)
    elif given.what == "memory":
        memory(given.lines)
    else:
        features(given.repeats)


if __name__ == "__main__":
    main()
