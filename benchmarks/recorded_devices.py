"""Hardware columns on a device that nothing was learnt of: recorded GEMM spaces of many GPUs.

    for GPU in ...; do hetfeat import --format kernel-tuner --device GPU FILE --out DIR; done
    python benchmarks/recorded_devices.py --records DIR --out FILE [--models xgb,lgbm]
        [--without none,hardware,hardware_shuffled,hardware_of_nearest] [--jobs 2]
    python benchmarks/recorded_devices.py --out FILE --table

The same configurations of one kernel, measured on each device of DIR; each device is held out in
turn. A model reads a configuration's parameters in place of a trace, and the hardware columns.
Cells are as in `models.py`. Of each device PER_DEVICE configurations are drawn by the seed, others
on each.
"""

import json

import numpy as np
from models import Cell, arguments, figures_on, run, table

from hetfeat.dataset.store import RecordStore
from hetfeat.features import columns
from hetfeat.features.batch import Batch, Examples
from hetfeat.features.hardware import hardware_vector
from hetfeat.features.trace import WIDTH

PER_DEVICE = 3000


def examples_of(store: RecordStore, seed: int) -> Examples:
    """Configurations with their parameters, by name, in the first columns of a trace."""
    read = store.read(["device", "task", "operator", "shapes", "program", "trace", "latencies_s"])
    whole = {name: read[name].to_numpy(zero_copy_only=False) for name in read.column_names}
    rng = np.random.default_rng(seed)
    rows = []
    for device in sorted(set(whole["device"].tolist())):
        own = np.flatnonzero(whole["device"] == device)
        rows.append(rng.choice(own, min(PER_DEVICE, len(own)), replace=False))
    told = {name: column[np.concatenate(rows)] for name, column in whole.items()}
    parameters = [json.loads(trace) for trace in told.pop("trace")]
    latencies = told.pop("latencies_s")
    trace = np.zeros((len(parameters), len(columns.TRACE)), np.float32)
    for i, name in enumerate(sorted(parameters[0])):
        trace[:, i] = [each[name] for each in parameters]
    hardware = {name: hardware_vector(profile) for name, profile in store.devices().items()}
    none = np.zeros(len(trace) + 1, np.int64)
    batch = Batch(
        stores=np.empty((0, len(columns.STORE)), np.float32),
        offsets=none,
        trace=trace,
        steps=np.empty((0, WIDTH), np.float32),
        step_offsets=none,
        task=np.zeros((len(trace), len(columns.TASK)), np.float32),
        hardware=np.stack([hardware[device] for device in told["device"]]),
    )
    latency_s = np.array([np.median(each) if len(each) else np.nan for each in latencies])
    return Examples(batch=batch, latency_s=latency_s, **told)


def figures_of(cell: Cell, store: RecordStore) -> dict[str, float]:
    """Trains and judges a cell, in this process."""
    return figures_on(cell, store, examples_of(store, cell.seed))


def main() -> None:
    parser = arguments(__doc__, ["xgb", "lgbm"], ["by_target"])
    parser.add_argument("--without", default="none,hardware,hardware_shuffled,hardware_of_nearest")
    run(parser.parse_args(), __file__, figures_of, table)


if __name__ == "__main__":
    main()
