"""Time and peak memory of every pass over a record store, against its size.

    python benchmarks/store_scaling.py --records 10000 100000 1000000
    python benchmarks/store_scaling.py --records 10000000 --stores false [--folder DIR]

The records are synthetic: traces of about 2 kB on eight tasks of two devices; three latencies
each, which follow from the innermost factors; one in ten failed, one in a hundred measured again;
two buffer stores each, or none. Each pass is a process of its own; shown are its processor time,
its wall time and the peak of its resident memory, start-up included.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hetfeat.dataset.schema import FEATURES_PER_STORE, SCHEMA
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.profile import DeviceProfile

DEVICES = ("here", "there")
OPERATORS = ("matmul", "conv2d")
SIDES = (16, 32, 48, 64, 96, 128, 192, 256)
BLOCK = 4096
STORES = 2
INSTRUCTIONS = [
    instruction
    for i in range(14)
    for factors in [[f"v{i}0", f"v{i}1", f"v{i}2", f"v{i}3"]]
    for instruction in (
        ["SamplePerfectTile", [f"l{i}"], [4, 64], factors],
        ["Split", [f"l{i}", *factors], [1], [f"m{i}{j}" for j in range(4)]],
    )
]


def make_store(
    folder: Path, records: int, stores: bool, block: int = BLOCK, sides: Sequence[int] = SIDES
) -> None:
    """The write pass, which also makes the records: blocks of a task through the store's writer."""
    store = RecordStore.create(folder)
    for name in DEVICES:
        target = {"kind": "llvm", "num-cores": 2}
        store.add_device(DeviceProfile(name, "cpu-x86", target, 2, num_cores=2))
    writer = store.writer()
    for number, start in enumerate(range(0, records, block)):
        device, which = divmod(number, len(sides))
        place = (DEVICES[device % 2], OPERATORS[which % 2], sides[which])
        writer.add(_block(start, min(block, records - start), stores, *place))
    writer.close()


def _block(start: int, count: int, stores: bool, device: str, operator: str, side: int) -> pa.Table:
    rng = np.random.default_rng(start)
    task = f"{side:016x}"
    factors = 2 ** rng.integers(0, 7, (count, 14, 4))
    head = json.dumps(INSTRUCTIONS, separators=(",", ":"))
    traces = [
        f"[{head},{json.dumps([[2 * j, f] for j, f in enumerate(row)], separators=(',', ':'))}]"
        for row in factors.tolist()
    ]
    keys = [hashlib.sha256(f"{task}\n{trace}".encode()).hexdigest()[:24] for trace in traces]
    again = np.flatnonzero(rng.random(count) < 0.01)[1:]
    for i in again.tolist():
        traces[i], keys[i] = traces[i - 1], keys[i - 1]
    failed = rng.random(count) < 0.1
    work = np.log2(factors[:, :, 3]).sum(axis=1, keepdims=True) / 8
    seconds = (1e-4 * 2**work * rng.lognormal(0, 0.1, (count, 3))).tolist()
    values = rng.integers(0, 40, (count * STORES * FEATURES_PER_STORE,)).astype(np.float32) / 2
    offsets = np.arange(count + 1, dtype=np.int32) * (STORES * FEATURES_PER_STORE)
    features = pa.ListArray.from_arrays(offsets, values) if stores else pa.nulls(count)
    constant = {
        "device": device,
        "task": task,
        "operator": operator,
        "shapes": json.dumps([[side, side]] * 3, separators=(",", ":")),
        "dtype": "float32",
        "flops": 2.0 * side**3,
        "versions": "synthetic",
    }
    columns: dict[str, Any] = {name: [value] * count for name, value in constant.items()} | {
        "program": keys,
        "trace": traces,
        "latencies_s": [[] if bad else s for bad, s in zip(failed, seconds, strict=True)],
        "error": ["build" if bad else None for bad in failed],
        "unix_s": np.arange(start, start + count, dtype=np.float64),
        "stores": features.cast(SCHEMA.field("stores").type),
    }
    return pa.table({name: columns[name] for name in SCHEMA.names}, SCHEMA)


def verify(folder: Path) -> None:
    if RecordStore.open(folder).damaged_shards():
        raise SystemExit("damaged")


def stats(folder: Path) -> None:
    from hetfeat.dataset.stats import counts

    counts(RecordStore.open(folder))


def features(folder: Path) -> None:
    """All features of all programs, as the models read them, summed."""
    from hetfeat.features.assemble import map_examples
    from hetfeat.models.aggregate import flat_features

    def total(examples: Any) -> Any:
        return flat_features(examples.batch).sum(axis=0, dtype=np.float64)

    parts = map_examples(RecordStore.open(folder), total)
    sum(part.result for part in parts)


def export(folder: Path) -> None:
    """With modules for the tasks, which are made here so that no other pass imports TVM."""
    import tvm
    from tvm import te, topi

    from hetfeat.dataset.export import export_metaschedule
    from hetfeat.workloads.relax import save_workload

    modules = {}
    for side in SIDES:
        source = te.placeholder((side, side), name="source")
        module = tvm.IRModule({"main": te.create_prim_func([source, topi.tanh(source)])})
        modules[f"{side:016x}"] = save_workload(module)
    store = RecordStore.open(folder)
    store.add_workloads(modules)
    export_metaschedule(store, folder / "exported")


def _passes(records: int, stores: bool) -> dict[str, Callable[[Path], None]]:
    return {
        "write": lambda folder: make_store(folder, records, stores),
        "verify": verify,
        "stats": stats,
        "features": features,
        "export": export,
    }


def measured(name: str, folder: Path, records: int, stores: bool) -> str:
    """Seconds and peak memory of a pass in a child of its own."""
    command = [sys.executable, __file__, "--one", name, "--folder", str(folder)]
    command += ["--records", str(records), "--stores", str(stores).lower()]
    started = time.perf_counter()
    child = subprocess.Popen(command)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{name} failed")
    wall = time.perf_counter() - started
    cpu = usage.ru_utime + usage.ru_stime
    return f"{cpu:.1f} s ({wall:.1f} s), {usage.ru_maxrss / 1024:.0f} MB"


def rows(sizes: list[int], folder: Path, stores: bool) -> Iterator[str]:
    for records in sizes:
        store = folder / f"{records}"
        cells = [f"{records:,}", "yes" if stores else "no"]
        for name in _passes(records, stores):
            cells.append(measured(name, store, records, stores))
            if name == "write":
                files = store.rglob("*.parquet")
                cells.insert(2, f"{sum(f.stat().st_size for f in files) / 2**20:.1f} MB")
        shutil.rmtree(store)
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="Where the stores lie meanwhile.")
    parser.add_argument("--records", type=int, nargs="+", required=True)
    parser.add_argument("--stores", choices=["true", "false"], default="true")
    parser.add_argument("--one", help="Run this pass in this process.")
    given = parser.parse_args()
    stores = given.stores == "true"
    if given.one:
        _passes(given.records[0], stores)[given.one](given.folder)
        return
    print(f"| records | features | on disk | {' | '.join(_passes(0, stores))} |")
    print(f"| ---: | --- | ---: |{' --- |' * len(_passes(0, stores))}", flush=True)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for row in rows(given.records, Path(folder), stores):
            print(row, flush=True)


if __name__ == "__main__":
    main()
