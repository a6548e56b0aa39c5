"""Every model on every split: trains each cell once, keeps its figures, prints the table.

    python benchmarks/models.py --records DIR --out FILE [--models xgb,lgbm,...] [--seeds 0,1,2]
        [--splits within_task,...] [--holdout 'DEVICE or PATTERN',...] [--without none,hardware,...]
        [--jobs 2]
    python benchmarks/models.py --out FILE --table

A cell is a model, a split, a seed and what was left out; it is trained in a process of its own, on
one core, and is one JSON line of FILE; `train_s` is processor time. Cells that FILE holds are not
trained again, so that an interrupted run goes on. by_dense_task is by_task with the store's
evaluation tasks as the test side, whatever the seed. by_target has a cell for each held-out device,
or pattern of devices ('*znver4*' is a machine with all its profiles); by_target_new holds out the
device and tests on tasks that were trained on no device; by_class holds out all of the device's
class: CPU records teach of a GPU, GPU records of a CPU. tenset is TenSet's own protocol.
"""

import argparse
import fnmatch
import itertools
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from loop_nests import with_nests
from model_baselines import BASELINES, ON_NESTS, TVM, Remeasured

from hetfeat.dataset.files import end_torn_line, json_lines
from hetfeat.dataset.sidecar_files import evaluation_tasks
from hetfeat.dataset.splits import TENSET, split_as_tenset, split_examples
from hetfeat.dataset.store import RecordStore
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Examples
from hetfeat.features.columns import HARDWARE
from hetfeat.models.evaluate import evaluate
from hetfeat.models.hyperparameters import build
from hetfeat.models.registry import MODELS

SPLITS = ("within_task", "by_task", "by_target", "by_target_new")
"""Those of any records; by_dense_task wants evaluation tasks, by_class CPUs and GPUs."""
WARP = [column.name for column in HARDWARE].index("warp_size")
FIGURES = ("pca", "rmse", "r2", "top1", "top5", "train_s", "programs_per_s", "memory_mb")
ENDS = ("low", "high")
CHANCE = ("random", "constant")
REMEASURED = "remeasured"
_SCORED = 5000
"""Programs scored to time scoring, repeats among them."""


@dataclass(frozen=True)
class Cell:
    """What one line of the file is of."""

    model: str
    split: str
    seed: int
    holdout: str
    without: str
    effort: str
    settings: dict[str, Any]


def sides_of(
    examples: Examples, cell: Cell, dense: Sequence[str] = ()
) -> tuple[Examples, Examples, Examples]:
    """Train, valid and test of a cell; `dense` are the store's evaluation tasks."""
    devices = sorted(set(examples.device.tolist()))
    holdout = fnmatch.filter(devices, cell.holdout)
    held = np.isin(examples.device.astype(str), holdout)
    if cell.split == "by_class":
        gpu = np.isfinite(examples.batch.hardware[:, WARP])
        others = examples.take(np.flatnonzero(gpu != gpu[held][0]))
        split = split_examples(others, "by_task", cell.seed)
        rest = np.concatenate([split.train, split.test])
        return others.take(rest), others.take(split.valid), examples.take(np.flatnonzero(held))
    if cell.split == TENSET:
        split = split_as_tenset(examples, cell.seed)
        return tuple(examples.take(side) for side in (split.train, split.valid, split.test))
    if cell.split != "by_target_new":
        kind, networks = cell.split, {}
        if kind == "by_dense_task":
            kind, holdout, networks = "by_task", [kind], {kind: dict.fromkeys(dense, 1)}
        split = split_examples(examples, kind, cell.seed, holdout, networks)
        return tuple(examples.take(side) for side in (split.train, split.valid, split.test))
    split = split_examples(examples, "by_task", cell.seed)
    return (
        examples.take(split.train[~held[split.train]]),
        examples.take(split.valid[~held[split.valid]]),
        examples.take(split.test[held[split.test]]),
    )


def emptied(part: str):
    """All columns of a kind zero: a constant tells nothing."""

    def nothing_of(batch):
        parts = {part: np.zeros_like(getattr(batch, part))}
        if part == "trace":
            parts["steps"] = np.zeros_like(batch.steps)
        return parts

    def change(sides):
        batches = [replace(s.batch, **nothing_of(s.batch)) for s in sides]
        return [replace(s, batch=b) for s, b in zip(sides, batches, strict=True)]

    return change


def with_hardware(side: Examples, vectors: dict[str, Any]) -> Examples:
    hardware = np.array([vectors[device] for device in side.device.tolist()], np.float32)
    return replace(side, batch=replace(side.batch, hardware=hardware))


def vectors_of(*sides: Examples) -> dict[str, Any]:
    pairs = [zip(s.device.tolist(), s.batch.hardware, strict=True) for s in sides]
    return dict(itertools.chain(*pairs))


def shuffled_hardware(sides):
    """Each device with the hardware columns of the next one, by name."""
    own = vectors_of(*sides)
    names = sorted(own)
    turned = {name: own[names[i - 1]] for i, name in enumerate(names)}
    return [with_hardware(side, turned) for side in sides]


def nearest_device(sides):
    """Devices of the test side with the hardware columns of the nearest that was trained on."""
    known = vectors_of(sides[0])

    def nearest(vector):
        return min(known.values(), key=lambda other: np.nanmean((other - vector) ** 2))

    own = {name: nearest(vector) for name, vector in vectors_of(sides[2]).items()}
    return [sides[0], sides[1], with_hardware(sides[2], own)]


ABLATIONS = {
    "none": lambda sides: sides,
    "hardware": emptied("hardware"),
    "task": emptied("task"),
    "program": emptied("stores"),
    "trace": emptied("trace"),
    "hardware_shuffled": shuffled_hardware,
    "hardware_of_nearest": nearest_device,
}


def figures_of(cell: Cell, store: RecordStore) -> dict[str, float]:
    """Trains and judges a cell, in this process."""
    examples = assemble(store).examples
    return figures_on(
        cell, store, with_nests(store, examples) if cell.model in ON_NESTS else examples
    )


def figures_on(cell: Cell, store: RecordStore, examples: Examples) -> dict[str, float]:
    """The same, on what a store's records are read as."""
    dense = evaluation_tasks(store.path)
    train, valid, test = ABLATIONS[cell.without](sides_of(examples, cell, dense))
    if cell.model == REMEASURED:
        again = Remeasured(store, test, train, valid)
        return evaluate(again, train, valid, again.examples).metrics
    start = time.process_time()
    if cell.model in BASELINES:
        model = BASELINES[cell.model](cell.seed)
    else:
        model = build(cell.model, cell.effort, cell.seed, cell.settings)
    model.fit(train, valid)
    train_s = time.process_time() - start
    judged = evaluate(model, train, valid, test, store.networks(), cell.seed)
    many = test.batch.take(np.resize(np.arange(len(test)), _SCORED))
    start = time.process_time()
    model.predict(many)
    chance = {
        f"{name}.{key}": value
        for name, row in judged.baselines.items()
        for key, value in row.items()
    }
    return {
        **judged.metrics,
        **chance,
        "train_s": train_s,
        "programs_per_s": _SCORED / (time.process_time() - start),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "train_records": len(train),
        "test_records": len(test),
        "train_rmse": evaluate(model, train, valid, train).metrics["rmse"],
    }


def wanted(given: argparse.Namespace, devices: list[str]) -> Iterator[Cell]:
    """The cells asked for."""
    settings = json.loads(given.settings)
    for split, seed in itertools.product(given.splits.split(","), given.seeds.split(",")):
        held = (
            (given.holdout.split(",") if given.holdout else devices)
            if "target" in split or split == "by_class"
            else [""]
        )
        for device, model, without in itertools.product(
            held if len(devices) > 1 or held == [""] else [],
            given.models.split(","),
            given.without.split(","),
        ):
            own = settings if model in MODELS else {}
            yield Cell(model, split, int(seed), device, without, given.effort, own)


def line_of(cell: Cell, digest: str) -> dict[str, Any]:
    return {**vars(cell), "records": digest[:12]}


def read(path: Path) -> list[dict[str, Any]]:
    """The finished cells; a torn last line is of a cell that was not."""
    end_torn_line(path)
    return list(json_lines(path))


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: mean and, of several cells, spread over seeds and held-out devices."""
    groups: dict[tuple[str, ...], list[dict[str, float]]] = {}
    for row in rows:
        name = " ".join([row["model"], *(f"{k}={v}" for k, v in row["settings"].items())])
        name += "" if row["without"] == "none" else f" ({row['without']})"
        groups.setdefault((row["records"], row["split"], name), []).append(row["figures"])
        for other in CHANCE:
            chance = {key: row["figures"].get(f"{other}.{key}") for key in FIGURES}
            if chance["pca"] is not None and row["without"] == "none":
                groups.setdefault((row["records"], row["split"], other), []).append(chance)
    lines = ["records | split | model | cells | " + " | ".join(FIGURES)]
    lines.append(" | ".join(["---"] * (len(FIGURES) + 4)))
    for (records, split, name), cells in sorted(groups.items()):
        shown = [spread([cell.get(key) for cell in cells]) for key in FIGURES]
        shown[0] += over_tasks(cells)
        lines.append(" | ".join([records, split, name, str(len(cells)), *shown]))
    return "\n".join(f"| {line} |" for line in lines)


def over_tasks(cells: list[dict[str, float]]) -> str:
    """Ends of the interval of PCA over tasks; cells made before there was one have none."""
    low, high = ([cell[f"pca.{end}"] for cell in cells if f"pca.{end}" in cell] for end in ENDS)
    return f" ({np.mean(low):.3f} to {np.mean(high):.3f})" if low and high else ""


def spread(values: list[float | None]) -> str:
    known = [value for value in values if value is not None and np.isfinite(value)]
    if not known:
        return ""
    digits = 3 if max(map(abs, known)) < 2 else 0
    text = f"{np.mean(known):.{digits}f}"
    return text if len(known) == 1 else f"{text} ± {np.std(known):.{digits}f}"


def main() -> None:
    parser = arguments(__doc__, [*MODELS, *TVM, REMEASURED], SPLITS)
    parser.add_argument("--without", default="none")
    run(parser.parse_args(), __file__, figures_of, table)


def arguments(description: str, models: Sequence[str], splits: Sequence[str]):
    """Options of a benchmark that trains cells."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", default=",".join(models))
    parser.add_argument("--splits", default=",".join(splits))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--holdout", default="")
    parser.add_argument("--effort", default="standard")
    parser.add_argument("--settings", default="{}", help="JSON: hyperparameters of every model")
    parser.add_argument("--jobs", type=int, default=1, help="cells trained at a time")
    parser.add_argument("--table", action="store_true", help="only print what FILE holds")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    return parser


def run(given: argparse.Namespace, script: str, figures_of: Callable, table: Callable) -> None:
    """Trains a single cell, in a child; else all that are missing, and prints the table."""
    if given.cell:
        cell = Cell(**json.loads(given.cell))
        figures = figures_of(cell, RecordStore.open(given.records))
        print(json.dumps({key: float(value) for key, value in figures.items()}))
        return
    if not given.table:
        run_missing(given, script)
    print(table(read(given.out)))


def run_missing(given: argparse.Namespace, script: str) -> None:
    """Runs `script --cell` for each cell that the file lacks."""
    store = RecordStore.open(given.records)
    digest, devices = store.digest(), sorted(set(store.read(["device"])["device"].to_pylist()))
    done = [{k: v for k, v in row.items() if k != "figures"} for row in read(given.out)]
    missing = [cell for cell in wanted(given, devices) if line_of(cell, digest) not in done]
    command = [sys.executable, script, "--records", str(given.records), "--out", "unused", "--cell"]
    idle: SimpleQueue[int] = SimpleQueue()
    for core in sorted(os.sched_getaffinity(0))[: given.jobs]:
        idle.put(core)

    def figures_of_child(cell: Cell) -> str | None:
        core = idle.get()
        told = subprocess.run(
            ["taskset", "-c", str(core), *command, json.dumps(vars(cell))],
            stdout=subprocess.PIPE,
            text=True,
        )
        idle.put(core)
        return None if told.returncode else told.stdout.splitlines()[-1]

    with ThreadPoolExecutor(given.jobs) as pool:
        cells = {pool.submit(figures_of_child, cell): cell for cell in missing}
        for future in as_completed(cells):
            line, told = line_of(cells[future], digest), future.result()
            if told is None:
                print(f"failed: {line}", file=sys.stderr)
                continue
            figures = json.loads(told)
            with given.out.open("a") as file:
                file.write(json.dumps({**line, "figures": figures}) + "\n")
            print(f"{line}: pca {figures['pca']:.3f}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
