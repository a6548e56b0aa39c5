"""Makes the packaged data set: a balanced part of what `hetfeat collect` measured.

    python tools/package_records.py WHOLE OUT --more STORE STORE [--programs 48]

Of each task of WHOLE come at most so many programs, evenly from the fastest to the slowest on the
first device, and the same ones on the others. Left out are programs that did not run on every
device and those of batches that something else on the machine slowed down. Stores given as `--more`
are added as they are; of a device that several know, the first one's profile is kept. Of no store
come tasks with the anchor of one in the networks `--without`, whose latencies docs/performance.md
reports, and none that nothing was measured of.
"""

import argparse
import json
from collections import ChainMap, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hetfeat.dataset.schema import median_latencies
from hetfeat.dataset.store import RecordStore
from hetfeat.records import anchor_of
from hetfeat.workloads.convolution_variants import extract_variant_tasks
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.relax import as_target, import_network, in_layout
from hetfeat.workloads.winograd import TRANSFORMS

LIGHT = ["device", "task", "program", "unix_s", "latencies_s"]
PAUSE_S = 1.5
"""Between the measurements of two batches something else is measured or built."""
NEIGHBOURS = 3
WITHOUT = ("resnet18", "resnet50", "mobilenet_v3_large", "inception_v3", "bert_base", "vit_b_16")
SLOWED = 1.6
"""A batch this much slower on one device, against the others and against the batches before and
after it, shared the machine with something: two threads then run one after the other."""


def by_task(store: RecordStore) -> Iterator[tuple[str, list[str], Any, Any]]:
    """Each task with the programs that ran everywhere, their log latencies and their times.

    Both are float64 [programs, devices], devices sorted by name.
    """
    devices = sorted(store.devices())
    found: dict[str, dict[str, dict[str, tuple[float, float]]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for table in store.scan(LIGHT):
        latency_s = median_latencies(table["latencies_s"]).tolist()
        names = (table[name].to_pylist() for name in LIGHT[:4])
        for device, task, program, unix_s, seconds in zip(*names, latency_s, strict=True):
            if np.isfinite(seconds):
                found[task][program][device] = np.log(seconds), unix_s
    for task, programs in found.items():
        keys = [key for key, ran in programs.items() if len(ran) == len(devices)]
        both = np.array([[programs[key][d] for d in devices] for key in keys])
        yield task, keys, *both.reshape(-1, len(devices), 2).transpose(2, 0, 1)


def slowed(latency: Any, unix_s: Any) -> Any:
    """Which programs stand in a slowed batch on some device, bool [programs]."""
    against = latency - np.median(latency, axis=1, keepdims=True)
    bad = np.zeros(len(latency), bool)
    for device in range(latency.shape[1]):
        order = np.argsort(unix_s[:, device])
        cuts = np.flatnonzero(np.diff(unix_s[order, device]) > PAUSE_S) + 1
        batches = np.split(order, cuts)
        shifts = np.array([np.median(against[rows, device]) for rows in batches])
        for i, rows in enumerate(batches):
            first = max(0, i - NEIGHBOURS)
            near = np.delete(shifts[first : i + NEIGHBOURS + 1], i - first)
            if len(near) and shifts[i] - np.median(near) > np.log(SLOWED):
                bad[rows] = True
    return bad


def anchors_of(networks: list[str], target: dict[str, Any]) -> set[str]:
    """What tells of a network's tasks, each convolution computed in every variant."""
    anchors = set()
    for name in networks:
        module = in_layout(import_network(load_network(name)), as_target(target))
        tasks = extract_variant_tasks(module, as_target(target), TRANSFORMS)
        anchors |= {task.task.anchor for task in tasks}
    return anchors


def tasks_of(store: RecordStore, anchors: set[str]) -> set[str]:
    """Tasks of a store that have one of the anchors."""
    rows = store.read(["task", "operator", "shapes"]).group_by(["task", "operator", "shapes"])
    tasks = rows.aggregate([]).to_pylist()
    return {
        row["task"]
        for row in tasks
        if anchor_of(row["operator"], json.loads(row["shapes"])) in anchors
    }


def balanced(whole: RecordStore, programs: int, without: set[str]) -> set[str]:
    """Keys of the programs to keep."""
    kept: set[str] = set()
    for task, keys, latency, unix_s in by_task(whole):
        if keys and task not in without:
            rows = np.flatnonzero(~slowed(latency, unix_s))
            rows = rows[np.argsort(latency[rows, 0])]
            places = np.linspace(0, len(rows) - 1, min(programs, len(rows))).round().astype(int)
            kept.update(keys[row] for row in rows[places])
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("whole", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--more", type=Path, nargs="*", default=[])
    parser.add_argument("--programs", type=int, default=48)
    parser.add_argument("--without", nargs="*", default=WITHOUT)
    given = parser.parse_args()
    whole, more = RecordStore.open(given.whole), [RecordStore.open(path) for path in given.more]
    devices = ChainMap(*(store.devices() for store in (whole, *more)))
    anchors = anchors_of(given.without, next(iter(whole.devices().values())).target)
    without = {task for store in (whole, *more) for task in tasks_of(store, anchors)}
    chosen = pc.field("program").isin(pa.array(sorted(balanced(whole, given.programs, without))))
    others = ~pc.field("task").isin(pa.array(sorted(without), pa.string()))
    out = RecordStore.create(given.out)
    for profile in devices.values():
        out.add_device(profile)
    writer = out.writer()
    for store in (*more, whole):
        for table in store.scan(where=chosen if store is whole else others):
            writer.add(table)
        modules, measured = store.workloads(), set(store.read(["task"])["task"].to_pylist())
        for name, weights in store.networks().items():
            own = {task: count for task, count in weights.items() if task in measured - without}
            own = out.networks().get(name, {}) | own
            if own:
                out.add_network(name, own, {task: modules[task] for task in own if task in modules})
    writer.close()


if __name__ == "__main__":
    main()
