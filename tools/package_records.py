"""Makes the packaged data set: a balanced part of what `hetfeat collect` measured.

    python tools/package_records.py WHOLE OUT --more STORE STORE [--programs 48]
    python tools/package_records.py WHOLE --family gpu-nvidia [--more STORE STORE]
    python tools/package_records.py WHOLE --append cpu-x86 [--more STORE STORE]

Of each task of WHOLE come at most so many programs, evenly from the fastest to the slowest on the
first device, and the same ones on the others. Left out are programs that did not run on every
device and those of batches that something else on the machine slowed down. Stores given as `--more`
are added as they are; of a device that several know, the first one's profile is kept. Of no store
come tasks with the anchor of one in the networks `--without`, whose latencies docs/performance.md
reports, and none that nothing was measured of.

With `--family` the records are those of its devices, each balanced by itself. They take the place
of the family's packaged ones (give these as `--more` to add to them). Their card, a README.md, is
written, too. What would make the whole data set larger than MOST_BYTES is refused.

With `--append` all records of the stores that ran become shards beside the family's packaged ones,
which stay as they are, with their card. With `--known` those of tasks that are not packaged yet are
left out: the tasks are one file of 7 MB, of which the history keeps each version.
"""

import argparse
import json
import shutil
import sys
from collections import ChainMap, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hetfeat.dataset import packaged
from hetfeat.dataset.schema import SCHEMA, median_latencies
from hetfeat.dataset.store import RecordStore
from hetfeat.dataset.store_config import StoreConfig
from hetfeat.devices.families import devices_of_family
from hetfeat.devices.profile import DeviceProfile
from hetfeat.durable import publish_folder
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
SMALL = StoreConfig(compression_level=19)
MOST_BYTES = 25_000_000
"""Of all packaged records, cards among them."""


def by_task(
    store: RecordStore, devices: Sequence[str]
) -> Iterator[tuple[str, list[str], Any, Any]]:
    """Each task with the programs that ran everywhere, their log latencies and their times.

    Both are float64 [programs, devices].
    """
    found: dict[str, dict[str, dict[str, tuple[float, float]]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for table in store.scan(LIGHT):
        latency_s = median_latencies(table["latencies_s"]).tolist()
        names = (table[name].to_pylist() for name in LIGHT[:4])
        for device, task, program, unix_s, seconds in zip(*names, latency_s, strict=True):
            if device in devices and np.isfinite(seconds):
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


def balanced(
    whole: RecordStore, devices: Sequence[str], programs: int, without: Collection[str]
) -> pc.Expression:
    """Which records of some devices to keep."""
    kept: set[str] = set()
    for task, keys, latency, unix_s in by_task(whole, devices):
        if keys and task not in without:
            rows = np.flatnonzero(~slowed(latency, unix_s))
            rows = rows[np.argsort(latency[rows, 0])]
            places = np.linspace(0, len(rows) - 1, min(programs, len(rows))).round().astype(int)
            kept.update(keys[row] for row in rows[places])
    return pc.field("device").isin(texts(devices)) & pc.field("program").isin(texts(kept))


def written(
    out: RecordStore,
    stores: Iterable[tuple[RecordStore, pc.Expression]],
    profiles: Mapping[str, DeviceProfile],
    without: Collection[str],
) -> None:
    """Writes the wanted records of each store, with the devices, networks and tasks they are of.

    Raises:
        SystemExit: There are none.
    """
    for profile in profiles.values():
        out.add_device(profile)
    writer = out.writer()
    for store, wanted in stores:
        for table in store.scan(where=wanted & pc.field("device").isin(texts(profiles))):
            # Programs of a task are alike: side by side they take a tenth less.
            writer.add(table.sort_by([("task", "ascending"), ("trace", "ascending")]))
        modules, measured = store.workloads(), set(store.read(["task"])["task"].to_pylist())
        for name, weights in store.networks().items():
            own = {task: count for task, count in weights.items() if task in measured - without}
            own = out.networks().get(name, {}) | own
            if own:
                out.add_network(name, own, {task: modules[task] for task in own if task in modules})
    writer.close()
    if not out.shards():
        sys.exit("no record is left: other records, or fewer networks as --without")


def texts(names: Collection[str]) -> pa.Array:
    """Names as an array, which has a type even if there are none."""
    return pa.array(sorted(names), pa.string())


CARD = """# The packaged records of {family}

{records} records of {tasks} tasks of {networks} networks, each built and run for this project.
They are a record store (`hetfeat records stats`, `hetfeat records verify`), and what
`hetfeat train --family {family}` learns from when no `--records` is given.
`tools/package_records.py` wrote this card.

| | |
| --- | --- |
{facts}

{counts}

SHA-256 of the store (`dataset_digest`): `{digest}`.

Left out is what has the anchor (operator, shapes of data and weights) of a task of
{without}, and what did not run of the last collection.
"""


def card(store: RecordStore, family: str, without: Collection[str]) -> str:
    """What there is to say of a family's records, in figures of the store alone."""
    rows = store.read([name for name in SCHEMA.names if name not in ("trace", "stores")])
    spread = [max(row) / min(row) for row in rows["latencies_s"].to_pylist() if row]
    ends_s = pc.min_max(rows["unix_s"]).as_py().values()
    dates = {datetime.fromtimestamp(s, UTC).date().isoformat() for s in ends_s}
    facts = {
        "Devices": "; ".join(f"`{n}` ({p.source})" for n, p in store.devices().items()),
        "Dates": " to ".join(sorted(dates)),
        "Tools": ", ".join(sorted(rows["versions"].unique().to_pylist())),
        "Networks": ", ".join(f"`{name}`" for name in sorted(store.networks())),
        "Noise": "slowest over fastest repeat of a record: {:.2f} in the median, {:.2f} at the "
        "90th percentile".format(*np.quantile(spread, [0.5, 0.9])),
        "Failures": f"{rows['error'].length() - rows['error'].null_count:,} of the records",
    }
    return CARD.format(
        family=family,
        records=f"{len(rows):,}",
        tasks=f"{pc.count_distinct(rows['task']).as_py():,}",
        networks=len(store.networks()),
        facts="\n".join(f"| {name} | {fact} |" for name, fact in facts.items()),
        counts="\n\n".join(counts(rows, key) for key in ("device", "dtype", "operator")),
        digest=store.digest(),
        without=", ".join(f"`{name}`" for name in without) or "no network",
    )


def counts(rows: pa.Table, key: str) -> str:
    """Markdown: records and tasks by the values of a column, most records first."""
    found = rows.group_by(key).aggregate([([], "count_all"), ("task", "count_distinct")])
    lines = [f"| {key} | records | tasks |", "| --- | --- | --- |"]
    for row in found.sort_by([("count_all", "descending"), (key, "ascending")]).to_pylist():
        lines.append(f"| {row[key]} | {row['count_all']:,} | {row['task_count_distinct']:,} |")
    return "\n".join(lines)


def add_family(
    draft: Path, family: str, without: Collection[str], root: Path, most_bytes: int = MOST_BYTES
) -> None:
    """Puts a family's records and their card into the data set, which may not grow too large."""
    target = root / family
    (draft / "README.md").write_text(card(RecordStore.open(draft), family, without))
    others = (path for path in root.rglob("*") if not path.is_relative_to(target))
    size = sum(p.stat().st_size for p in [*others, *draft.rglob("*")] if p.is_file())
    if size > most_bytes:
        shutil.rmtree(draft)
        sys.exit(
            f"{size / 1e6:.1f} MB of records, {most_bytes / 1e6:.1f} at most: fewer --programs"
        )
    publish_folder(draft, target)
    print(f"{target}: the whole data set has {size / 1e6:.1f} MB")


def append(
    stores: Sequence[RecordStore],
    family: str,
    networks: Sequence[str],
    root: Path,
    known: bool = False,
) -> None:
    """Adds what ran of some stores to a family's packaged records, but for tasks of `networks`.

    With `known` tasks that are not packaged yet are left out, too.
    """
    out = RecordStore(packaged.packaged_store(family, root), SMALL)
    profiles = dict(ChainMap(*(store.devices() for store in (out, *stores))))
    anchors = anchors_of(networks, next(iter(profiles.values())).target)
    without = {task for store in stores for task in tasks_of(store, anchors)}
    if known:
        without |= {task for store in stores for task in store.workloads()} - set(out.workloads())
    ran = pc.field("error").is_null() & ~pc.field("task").isin(texts(without))
    written(out, [(store, ran) for store in stores], profiles, without)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("whole", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--family")
    parser.add_argument("--append", metavar="FAMILY")
    parser.add_argument("--known", action="store_true")
    parser.add_argument("--more", type=Path, nargs="*", default=[])
    parser.add_argument("--programs", type=int, default=48)
    parser.add_argument("--without", nargs="*", default=WITHOUT)
    given = parser.parse_args()
    if [given.out, given.family, given.append].count(None) != 2:
        parser.error("OUT, --family or --append")
    return given


def main(root: Path = packaged.HERE) -> None:
    given = arguments()
    whole, more = RecordStore.open(given.whole), [RecordStore.open(path) for path in given.more]
    if given.append:
        append([whole, *more], given.append, given.without, root, given.known)
        return
    profiles = dict(ChainMap(*(store.devices() for store in (whole, *more))))
    if given.family:
        profiles = {name: profiles[name] for name in devices_of_family(profiles, given.family)}
    anchors = anchors_of(given.without, next(iter(profiles.values())).target)
    without = {task for store in (whole, *more) for task in tasks_of(store, anchors)}
    others = ~pc.field("task").isin(texts(without))
    alike = [[name] for name in profiles] if given.family else [sorted(whole.devices())]
    chosen = reduce(or_, (balanced(whole, each, given.programs, without) for each in alike))
    draft = given.out or root.parent / f".{given.family}.draft"
    if given.family:
        shutil.rmtree(draft, ignore_errors=True)
    out = RecordStore.create(draft, SMALL)
    written(out, [*((store, others) for store in more), (whole, chosen)], profiles, without)
    if given.family:
        add_family(draft, given.family, given.without, root)


if __name__ == "__main__":
    main()
