"""Time and peak memory of every pass that a record store goes through, against its size.

    python benchmarks/scale_records.py [--records 100000 1000000] [--folder DIR]
        [--passes verify features ...] [--model DIR]

Records are those of `store_scaling.py`, 4,096 programs of a task on a device. Each pass is a
process of its own: its processor time, its wall time and the peak of its resident memory, start-up
included. `--model` is what `evaluate` and `study` read where `train xgb` is not among the passes.
Every figure goes to benchmarks/results/scale-records.json at once, with the commit and the
processor; `--table` prints what is there.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import store_scaling

from hetfeat.dataset.store import RecordStore
from hetfeat.devices import host

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "scale-records.json"
SPLIT = "by_task"


def write(work: Path, records: int) -> None:
    """Blocks of a task on a device: every task has one on each."""
    block = min(store_scaling.BLOCK, max(1, records // 24))
    tasks = -(-records // (block * len(store_scaling.DEVICES)))
    sides = [16 + 16 * i for i in range(tasks)]
    store_scaling.make_store(work / "records", records, True, block, sides)


def import_(work: Path) -> None:
    """From the databases that `export` wrote."""
    from hetfeat.dataset.importers.import_records import import_records

    for device in store_scaling.DEVICES:
        folder = work / "exported" / device
        counts = import_records("metaschedule", device, [folder], work / "imported")
        counts.check()
        print(counts.summary(), file=sys.stderr)


def prune(work: Path) -> None:
    from hetfeat.dataset.prune import prune

    prune(RecordStore.open(work / "records"), work / "pruned", 0.55)


def split(work: Path) -> None:
    """Of keys alone, as `dataset.splits` has them: all three kinds."""
    from hetfeat.dataset.splits import SPLITS, split_examples

    keys = _keys(RecordStore.open(work / "records"))
    began = time.process_time()
    for kind in SPLITS:
        split_examples(keys, kind, 0, store_scaling.DEVICES[1:] if kind == "by_target" else ())
    print(f"without reading {time.process_time() - began:.1f} s", file=sys.stderr)


def _keys(store: RecordStore) -> Any:
    from hetfeat.features.assemble import map_examples
    from hetfeat.features.batch import concatenate

    parts = [part.result for part in map_examples(store, _without_features)]
    return concatenate(parts, parts[0].batch)


def _without_features(examples: Any) -> Any:
    from dataclasses import replace

    import numpy as np

    return replace(examples, batch=examples.batch.take(np.empty(0, np.int64)))


def features(work: Path) -> None:
    store_scaling.features(work / "records")


def _sides(work: Path) -> Any:
    from hetfeat.dataset.splits import split_examples
    from hetfeat.features.assemble import assemble
    from hetfeat.features.out_of_core import room_bytes

    examples = assemble(RecordStore.open(work / "records"), room_bytes=room_bytes()).examples
    found = split_examples(examples, SPLIT, 0)
    return [examples.take(getattr(found, side)) for side in ("train", "valid", "test")]


def train(work: Path) -> None:
    from hetfeat.models.gbdt import XgbModel

    learn, check, _ = _sides(work)
    model = XgbModel.for_effort("quick", 0)
    model.fit(learn, check)
    model.save(work / "model")


def evaluate(work: Path) -> None:
    from hetfeat.models.evaluate import evaluate
    from hetfeat.models.registry import load_model

    learn, check, test = _sides(work)
    judged = evaluate(load_model(work / "model"), learn, check, test)
    print(f"pca {judged.metrics['pca']:.4f}", file=sys.stderr)


def study(work: Path) -> None:
    from hetfeat.dataset.column_study import operators_by_device
    from hetfeat.models.importance import importances
    from hetfeat.models.registry import load_model

    operators_by_device(RecordStore.open(work / "records"))
    learn, _, test = _sides(work)
    importances(load_model(work / "model"), learn, test)


def export(work: Path) -> None:
    """With a module for each task, made here so that no other pass imports TVM."""
    import tvm
    from tvm import te, topi

    from hetfeat.dataset.export import export_metaschedule
    from hetfeat.workloads.relax import save_workload

    store = RecordStore.open(work / "records")
    tasks = {row["task"] for table in store.scan(["task"]) for row in table.to_pylist()}
    modules = {}
    for task in tasks:
        source = te.placeholder((int(task, 16),) * 2, name="source")
        module = tvm.IRModule({"main": te.create_prim_func([source, topi.tanh(source)])})
        modules[task] = save_workload(module)
    store.add_workloads(modules)
    export_metaschedule(store, work / "exported")


PASSES: dict[str, Callable[[Path], None]] = {
    "verify": lambda work: store_scaling.verify(work / "records"),
    "stats": lambda work: store_scaling.stats(work / "records"),
    "prune": prune,
    "split": split,
    "features": features,
    "train xgb": train,
    "evaluate": evaluate,
    "study": study,
    "export": export,
    "import": import_,
}
"""In the order in which they run: some read what others have written."""


def measured(name: str, work: Path, records: int) -> dict[str, Any]:
    """What a pass took, in a child of its own."""
    command = [sys.executable, __file__, "--one", name, "--folder", str(work)]
    started = time.perf_counter()
    child = subprocess.Popen([*command, "--records", str(records)])
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{name} failed")
    return {
        "pass": name,
        "records": records,
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "wall_s": round(time.perf_counter() - started, 2),
        "peak_memory_mb": round(usage.ru_maxrss / 1024),
        "us_a_record": round(1e6 * (usage.ru_utime + usage.ru_stime) / records, 2),
    }


def _what(figure: dict[str, Any]) -> tuple[str, int, str]:
    return figure["pass"], figure["records"], figure["processor"]


def keep(row: dict[str, Any]) -> None:
    """Writes a figure in the place of an older one of the same pass, size and processor."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"figures": []}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    row = row | {"commit": commit, "processor": host.cpu_model()}
    kept["figures"] = [f for f in kept["figures"] if _what(f) != _what(row)] + [row]
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


def tables() -> str:
    """One for each processor."""
    figures = json.loads(RESULTS.read_text())["figures"]
    processors = dict.fromkeys(figure["processor"] for figure in figures)
    return "\n\n".join(
        f"{name}\n\n{table([f for f in figures if f['processor'] == name])}" for name in processors
    )


def table(figures: list[dict[str, Any]]) -> str:
    """A row a pass, a column a size."""
    sizes = sorted({figure["records"] for figure in figures})
    lines = [
        f"| pass | {' | '.join(f'{size:,}' for size in sizes)} |",
        f"| ---{' | ---' * len(sizes)} |",
    ]
    for name in ("import", *(name for name in PASSES if name != "import")):
        cells = []
        for size in sizes:
            found = [f for f in figures if (f["pass"], f["records"]) == (name, size)]
            told = [f"{f['cpu_s']:.1f} s, {f['peak_memory_mb']:,} MB" for f in found]
            cells += told or ["not run"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="Where the stores lie meanwhile.")
    parser.add_argument("--records", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--passes", nargs="+", choices=list(PASSES), default=list(PASSES))
    parser.add_argument("--model", type=Path, help="Folder of a trained model.")
    parser.add_argument("--table", action="store_true", help="Print what was measured.")
    parser.add_argument("--one", help="Run this pass in this process.")
    given = parser.parse_args()
    if given.one:
        work = given.folder
        write(work, given.records[0]) if given.one == "write" else PASSES[given.one](work)
        return
    for records in [] if given.table else given.records:
        work = Path(tempfile.mkdtemp(prefix="scale-", dir=given.folder))
        try:
            print(measured("write", work, records), flush=True)
            if given.model:
                shutil.copytree(given.model, work / "model")
            for name in given.passes:
                row = measured(name, work, records)
                keep(row)
                print(row, flush=True)
        finally:
            shutil.rmtree(work)
    print(tables())


if __name__ == "__main__":
    main()
