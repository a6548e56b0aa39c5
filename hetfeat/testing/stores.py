"""Small record stores whose latencies follow from the features, with a little noise."""

from pathlib import Path

import numpy as np

from hetfeat.dataset.store import RecordStore
from hetfeat.dataset.store_config import StoreConfig
from hetfeat.devices.profile import DeviceProfile, Target
from hetfeat.records import Measurement, Program, Task

LEARNABLE = (16, 17, 157, 161)
"""Indices of the per-store columns that set the latency here."""


def profile(name: str, family: str = "cpu-x86", threads: int = 2) -> DeviceProfile:
    """A made-up device."""
    return DeviceProfile(
        name,
        family,
        Target({"kind": "llvm"}),
        threads,
        num_cores=threads,
        vector_unit_bytes=32,
        peak_gflops=100.0 * threads,
        bandwidth_gb_s=20.0,
    )


def task(number: int) -> Task:
    """A made-up task of one of three operators."""
    operator = ("conv2d", "matmul", "softmax")[number % 3]
    size = 8 * (number + 1)
    return Task(f"{number:016d}", operator, ((1, size), (size, size), (1, size)), "float32", 2e6)


def programs(of: Task, count: int, seed: int) -> list[Program]:
    """Programs of a task with random features."""
    rng = np.random.default_rng([seed, int(of.hash)])
    made = []
    for i in range(count):
        stores = np.zeros((int(rng.integers(1, 4)), 164), np.float32)
        stores[:, LEARNABLE] = rng.uniform(0, 6, (len(stores), len(LEARNABLE)))
        made.append(Program(of, f"[[],[[{seed},{i}]]]", stores))
    return made


def make_traced_store(path: Path, tasks: int, per_task: int, device: str = "a") -> RecordStore:
    """Programs without per-store features: a loop of 4096 is split, and the middle is fastest."""
    store = RecordStore.create(path)
    store.add_device(profile(device))
    rng = np.random.default_rng(0)
    for number in range(tasks):
        of = task(number)
        for i in range(per_task):
            inner = 2 ** int(rng.integers(0, 13))
            split = '["Split",["l1","v1","v2"],[1],["l2","l3"]]'
            draw = '["SamplePerfectTile",["l1"],[2,4096],["v1","v2"]]'
            program = Program(of, f"[[{draw},{split}],[[0,[{4096 // inner},{inner}]],[9,[{i}]]]]")
            latency_s = 1e-5 * (1 + abs(np.log2(inner) - 6)) * float(rng.uniform(0.99, 1.01))
            store.append([Measurement(program, device, (latency_s,), None, 1.0, "tvm")])
    store.compact()
    return store


def measured(program: Program, device: DeviceProfile, failed: bool = False) -> Measurement:
    """What a program takes on a device: its latency follows from `LEARNABLE`."""
    assert program.stores is not None
    cost = program.stores[:, LEARNABLE].sum(axis=0) @ np.array([-0.3, -0.2, 0.5, 0.4])
    latency_s = 1e-4 / device.threads * float(np.exp(0.2 * cost))
    latencies = () if failed else (latency_s * 0.99, latency_s, latency_s * 1.3)
    return Measurement(
        program, device.name, latencies, "build" if failed else None, 1.0, "tvm 0.27.0.post1"
    )


def make_store(
    path: Path,
    devices: tuple[str, ...] = ("a", "b"),
    tasks: int = 9,
    per_task: int = 12,
    family: str = "cpu-x86",
    options: StoreConfig = StoreConfig(),
) -> RecordStore:
    """A store in which the first program of each task failed."""
    store = RecordStore.create(path, options)
    for i, name in enumerate(devices):
        device = profile(name, family, threads=2**i)
        store.add_device(device)
        store.append(
            measured(program, device, failed=first == 0)
            for number in range(tasks)
            for first, program in enumerate(programs(task(number), per_task, seed=0))
        )
    weights = {task(number).hash: number + 1 for number in range(tasks)}
    store.add_network("small_net", weights, {})
    store.compact()
    return store
