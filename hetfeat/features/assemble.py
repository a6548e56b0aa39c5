"""Records and programs as the arrays a cost model reads."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hetfeat.dataset.schema import FEATURES_PER_STORE, shapes_as_text
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError
from hetfeat.features.batch import Batch, Examples, Floats
from hetfeat.features.hardware import hardware_vector
from hetfeat.features.task import task_vector
from hetfeat.records import Measurement, Program, Task

_COLUMNS = [
    *("device", "task", "operator", "shapes", "dtype", "flops", "program"),
    *("latencies_s", "unix_s", "stores"),
]
_TASK_FIELDS = ["task", "operator", "shapes", "dtype", "flops"]


@dataclass(frozen=True)
class Assembled:
    """What a store yields for training.

    Attributes:
        examples: The usable records, failures among them.
        without_features: Records left out because no per-store features were extracted.
        duplicates: Older measurements of a program on the same device, left out.
    """

    examples: Examples
    without_features: int
    duplicates: int


def batch_of(programs: Sequence[Program], profile: DeviceProfile) -> Batch:
    """Features of programs on a device, as the tuner asks for them each round.

    Raises:
        DataError: A program has no per-store features.
    """
    stores = [program.stores for program in programs if program.stores is not None]
    if len(stores) < len(programs):
        raise DataError(
            f"{len(programs) - len(stores)} programs without per-store features",
            "features extracted before prediction",
            "leave such programs out",
        )
    counts = [len(rows) for rows in stores]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    none = np.empty((0, FEATURES_PER_STORE), np.float32)
    tasks = [task_vector(program.task) for program in programs]
    task = np.stack(tasks) if tasks else np.empty((0, len(task_vector(_NO_TASK))), np.float32)
    hardware = np.tile(hardware_vector(profile), (len(programs), 1))
    return Batch(np.concatenate([none, *stores]), offsets, task, hardware)


def examples_of(measurements: Sequence[Measurement], profile: DeviceProfile) -> Examples:
    """Measurements on a device, as the tuner has them; those without features are left out."""
    usable = [m for m in measurements if m.program.stores is not None]
    tasks = [m.program.task for m in usable]
    latencies = [np.nan if m.latency_s is None else m.latency_s for m in usable]

    def column(values: Iterable[str]) -> npt.NDArray[np.object_]:
        return np.array(list(values), object)

    return Examples(
        batch_of([m.program for m in usable], profile),
        np.array(latencies, np.float64),
        column(task.hash for task in tasks),
        column(m.device for m in usable),
        column(task.operator for task in tasks),
        column(m.program.key for m in usable),
        column(shapes_as_text(task) for task in tasks),
    )


def assemble(store: RecordStore) -> Assembled:
    """All usable records of a store.

    Raises:
        DataError: The store is empty or damaged, or a device has records and no profile.
    """
    table = store.read(_COLUMNS)
    if not table.num_rows:
        raise DataError(
            f"record store '{store.path}' without records",
            "at least one measured program",
            "add some with `hetfeat collect --out DIR`",
        )
    usable = table.filter(pc.is_valid(table["stores"]))
    latest = _latest(usable)
    rows = usable.take(pa.array(latest))
    return Assembled(
        _examples(rows, store),
        table.num_rows - usable.num_rows,
        usable.num_rows - len(latest),
    )


def _examples(rows: pa.Table, store: RecordStore) -> Examples:
    stores, offsets = _stores(rows["stores"], store)
    batch = Batch(stores, offsets, _tasks(rows), _hardware(rows, store))
    return Examples(
        batch,
        _medians(rows["latencies_s"]),
        _objects(rows["task"]),
        _objects(rows["device"]),
        _objects(rows["operator"]),
        _objects(rows["program"]),
        _objects(rows["shapes"]),
    )


def _latest(table: pa.Table) -> npt.NDArray[np.int64]:
    """Positions, ascending, of the newest record of each program on each device."""
    newest: dict[tuple[str, str], int] = {}
    order = np.argsort(table["unix_s"].to_numpy(), kind="stable").tolist()
    devices, programs = table["device"].to_pylist(), table["program"].to_pylist()
    for i in order:
        newest[devices[i], programs[i]] = i
    return np.array(sorted(newest.values()), np.int64)


def _stores(column: pa.ChunkedArray, store: RecordStore) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Per-store features of all rows end to end, and where each row's begin."""
    lengths = pc.list_value_length(column).to_numpy().astype(np.int64)
    if (lengths % FEATURES_PER_STORE).any():
        raise DataError(
            f"record store '{store.path}' with per-store features of another width",
            f"{FEATURES_PER_STORE} values a store",
            "collect or import the records again with this version of hetfeat",
        )
    # Chunk by chunk: one Arrow list array holds at most 2**31 values.
    parts = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    flat = np.concatenate([np.empty(0, np.float32), *parts])
    offsets = np.concatenate([[0], np.cumsum(lengths // FEATURES_PER_STORE)])
    return flat.reshape(-1, FEATURES_PER_STORE), offsets.astype(np.int64)


def _medians(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Median of each row's latencies, NaN where there are none."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    values = pc.list_flatten(column).to_numpy()
    row = np.repeat(np.arange(len(lengths)), lengths)
    ordered = values[np.lexsort((values, row))]
    starts = np.cumsum(lengths) - lengths
    medians = np.full(len(lengths), np.nan)
    some = lengths > 0
    low, high = starts + (lengths - 1) // 2, starts + lengths // 2
    medians[some] = (ordered[low[some]] + ordered[high[some]]) / 2
    return medians


def _tasks(rows: pa.Table) -> Floats:
    keys = rows.select(_TASK_FIELDS)
    vectors: dict[tuple[object, ...], Floats] = {}
    columns = [keys[name].to_pylist() for name in _TASK_FIELDS]
    picked = []
    for key in zip(*columns, strict=True):
        if key not in vectors:
            shapes = tuple(tuple(shape) for shape in json.loads(key[2]))
            vectors[key] = task_vector(Task(key[0], key[1], shapes, key[3], key[4]))
        picked.append(vectors[key])
    return np.stack(picked) if picked else np.empty((0, len(task_vector(_NO_TASK))), np.float32)


def _hardware(rows: pa.Table, store: RecordStore) -> Floats:
    profiles = store.devices()
    names = rows["device"].to_pylist()
    if missing := sorted(set(names) - set(profiles)):
        raise DataError(
            f"record store '{store.path}' without a profile of {', '.join(missing)}",
            "devices/NAME.yaml for each device with records",
            "add it with `hetfeat devices probe --out FILE`, or collect anew",
        )
    vectors = {name: hardware_vector(profile) for name, profile in profiles.items()}
    width = len(next(iter(vectors.values()))) if vectors else 0
    return np.array([vectors[name] for name in names], np.float32).reshape(-1, width)


def _objects(column: pa.ChunkedArray) -> npt.NDArray[np.object_]:
    return np.array(column.to_pylist(), object)


_NO_TASK = Task("", "", (), "float32", 0.0)
