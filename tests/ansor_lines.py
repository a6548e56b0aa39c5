"""Lines as the auto-scheduler writes them, of our own making: sketches with random factors."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from hetfeat.dataset.importers import ansor
from hetfeat.dataset.schema import from_table
from hetfeat.records import Measurement

CPU = ("llvm -keys=cpu -mcpu=core-avx2", [4, 32, 64, 0, 0, 0, 0, 0])
GPU = (
    "cuda -keys=cuda,gpu -arch=sm_75 -max_num_threads=1024 -thread_warp_size=32",
    [-1, 16, 64, 49152, 2147483647, 1024, 8, 32],
)
UNROLL = ("auto_unroll_max_step$0", "auto_unroll_max_step$16", "auto_unroll_max_step$512")


def line(
    steps: list[Any],
    key: str = '["matmul_layer", 64, 32, 128]',
    hardware: tuple[str, list[int]] = CPU,
    result: list[Any] | None = None,
    version: str = "v0.6",
) -> dict[str, Any]:
    """A record; tasks have as many parts as those of the version."""
    parts = {"v0.2": 2, "v0.3": 3, "v0.4": 3, "v0.5": 5, "v0.6": 6}[version]
    task = [key, hardware[0], list(hardware[1]), "", 1, []][:parts]
    return {"i": [task, [[], steps]], "r": result or [[0.5], 0, 2.0, 1.6e9], "v": version}


def factors(extent: int, count: int, rng: random.Random) -> list[int]:
    """`count` inner lengths whose product divides the extent."""
    found = []
    for _ in range(count):
        found.append(rng.choice([n for n in range(1, extent + 1) if extent % n == 0]))
        extent //= found[-1]
    return found


def on_cpu(m: int, k: int, n: int, rng: random.Random) -> dict[str, Any]:
    """A matrix multiplication tiled twice with a cached write, as the CPU's rules make it."""
    steps = [
        ["CHW", 2, "local"],
        ["SP", 2, 0, m, factors(m, 3, rng), 1],
        ["SP", 2, 4, n, factors(n, 3, rng), 1],
        ["SP", 2, 8, k, factors(k, 1, rng), 1],
        ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]],
        ["FSP", 3, 0, 1, 2],
        ["FSP", 3, 3, 2, 2],
        ["RE", 3, [0, 3, 1, 4, 2, 5]],
        ["CA", 2, 3, 3],
        ["FU", 3, [0, 1]],
        ["AN", 3, 0, 3],
        ["PR", 2, 0, rng.choice(UNROLL)],
        ["AN", 2, 9, 2],
    ]
    return line(steps, json.dumps(["matmul_layer", m, k, n]), CPU, _result(rng))


def on_gpu(m: int, k: int, n: int, rng: random.Random) -> dict[str, Any]:
    """The same with two reads through shared memory, as the GPU's rules make it."""
    steps = [
        ["CHW", 2, "local"],
        ["SP", 2, 0, m, factors(m, 4, rng), 1],
        ["SP", 2, 5, n, factors(n, 4, rng), 1],
        ["SP", 2, 10, k, factors(k, 2, rng), 1],
        ["RE", 2, [0, 5, 1, 6, 2, 7, 10, 11, 3, 8, 12, 4, 9]],
        ["FSP", 3, 0, 1, 3],
        ["FSP", 3, 4, 2, 3],
        ["RE", 3, [0, 4, 1, 5, 2, 6, 3, 7]],
        ["CA", 2, 3, 5],
        ["CHR", 1, "shared", [2]],
        ["CA", 2, 3, 6],
        ["FU", 4, [0, 1]],
        ["AN", 4, 0, 5],
        ["FU", 4, [1, 2]],
        ["AN", 4, 1, 4],
        ["FU", 4, [2, 3]],
        ["AN", 4, 2, 6],
        ["FU", 2, [0, 1]],
        ["SP", 2, 0, 2 * rng.randrange(1, 64), [rng.choice((1, 2))], 1],
        ["AN", 2, 1, 2],
        ["FFSP", 2, 0, [1, 2], 1, 1],
        ["AN", 2, 1, 6],
        ["PR", 3, 0, rng.choice(UNROLL)],
    ]
    return line(steps, json.dumps(["matmul_layer", m, k, n]), GPU, _result(rng))


def _result(rng: random.Random) -> list[Any]:
    if rng.random() < 0.1:
        return [[1e10], rng.randrange(1, 9), 10.0, 1.6e9]
    costs = [rng.uniform(1e-5, 1e-2) for _ in range(rng.choice((1, 3, 10)))]
    return [costs, 0, rng.uniform(1, 5), 1.6e9]


def log(count: int, seed: int, make: Any = on_cpu, extents: tuple[int, int, int] = (64, 32, 128)):
    """That many lines, as bytes without their ends."""
    rng = random.Random(seed)
    return [json.dumps(make(*extents, rng)).encode() for _ in range(count)]


def read(folder: Path, lines: list[Any], **named: Any) -> tuple[list[Measurement], Counter[str]]:
    """Records, and skipped lines by reason, of a file of lines: bytes, or what JSON makes."""
    data = [entry if isinstance(entry, bytes) else json.dumps(entry).encode() for entry in lines]
    (folder / "log.json").write_bytes(b"\n".join(data))
    found, skipped = [], Counter()
    for batch in ansor.read([folder / "log.json"], "a", **named):
        found += from_table(batch.records)
        skipped.update(batch.skipped)
    return found, skipped
