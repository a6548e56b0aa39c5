"""Makes the packaged data set: a balanced part of what `hetfeat collect` measured.

    python tools/package_records.py WHOLE EARLIER OUT [--programs 48] [--without resnet18]

Of each task of WHOLE come at most so many programs, evenly from the fastest to the slowest on the
first device, and the same ones on the others; programs that did not run on every device are left
out, and so are the tasks of the networks that the quick start deploys. EARLIER, a store of one of
these devices, is added as it is; profiles are those of WHOLE.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hetfeat.dataset.schema import median_latencies
from hetfeat.dataset.store import RecordStore

LIGHT = ["device", "task", "program", "latencies_s"]


def balanced(whole: RecordStore, programs: int, without: set[str]) -> set[str]:
    """Keys of the programs to keep."""
    seconds: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for table in whole.scan(LIGHT):
        latencies = median_latencies(table["latencies_s"]).tolist()
        names = (table[name].to_pylist() for name in LIGHT[:3])
        for device, task, program, latency_s in zip(*names, latencies, strict=True):
            if task not in without and np.isfinite(latency_s):
                seconds[task][program][device] = latency_s
    devices = sorted(whole.devices())
    kept: set[str] = set()
    for found in seconds.values():
        everywhere = [key for key, by_device in found.items() if len(by_device) == len(devices)]
        ordered = sorted(everywhere, key=lambda key, found=found: found[key][devices[0]])
        places = np.linspace(0, len(ordered) - 1, min(programs, len(ordered)))
        kept.update(ordered[place] for place in places.round().astype(int))
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("whole", "earlier", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--programs", type=int, default=48)
    parser.add_argument("--without", nargs="*", default=["resnet18"])
    given = parser.parse_args()
    whole, earlier = RecordStore.open(given.whole), RecordStore.open(given.earlier)
    networks = whole.networks()
    without = {task for name in given.without for task in networks[name]}
    keys = pa.array(sorted(balanced(whole, given.programs, without)))
    out = RecordStore.create(given.out)
    for profile in whole.devices().values():
        out.add_device(profile)
    writer = out.writer()
    for store, where in ((earlier, None), (whole, pc.field("program").isin(keys))):
        for table in store.scan(where=where):
            writer.add(table)
        modules = store.workloads()
        for name, weights in store.networks().items():
            if name not in given.without:
                own = {task: count for task, count in weights.items() if task not in without}
                out.add_network(name, own, {task: modules[task] for task in own if task in modules})
    writer.close()


if __name__ == "__main__":
    main()
