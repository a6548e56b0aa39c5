"""Records and programs as the arrays a cost model reads."""

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hetfeat.cluster import Over
from hetfeat.dataset.duplicates import older_duplicates
from hetfeat.dataset.readers import Piece
from hetfeat.dataset.schema import (
    FEATURES_PER_STORE,
    list_lengths,
    median_latencies,
    shapes_as_text,
)
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError
from hetfeat.features.batch import Batch, Examples, Floats, Ints, concatenate
from hetfeat.features.columns import HARDWARE
from hetfeat.features.hardware import hardware_vector
from hetfeat.features.out_of_core import SpillFile
from hetfeat.features.task import task_vector
from hetfeat.features.trace import steps_and_vectors
from hetfeat.records import Measurement, Program, Task

_COLUMNS = [
    *("device", "task", "operator", "shapes", "dtype", "flops", "program"),
    *("trace", "latencies_s", "unix_s", "stores"),
]
WITH_STORES = pc.field("stores").is_valid()
SCHEDULED = pc.starts_with(pc.field("trace"), "[")
"""Traces of schedules; those of kernels with parameters are JSON objects, which no model reads."""
_TASK_FIELDS = ["task", "operator", "shapes", "dtype", "flops"]

T = TypeVar("T")


@dataclass(frozen=True)
class Assembled:
    """What a store yields for training.

    Attributes:
        examples: Usable records, failures among them.
        without_features: Number of records left out because no per-store features were extracted.
        duplicates: Number of older measurements of a program on the same device, left out.
    """

    examples: Examples
    without_features: int
    duplicates: int


def batch_of(programs: Sequence[Program], profile: DeviceProfile) -> Batch:
    """Features of programs on a device, as the tuner asks for them each round.

    A program without per-store features has its trace alone.

    Raises:
        DataError: A trace is none.
    """
    none = np.empty((0, FEATURES_PER_STORE), np.float32)
    stores = [none if program.stores is None else program.stores for program in programs]
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in stores])]).astype(np.int64)
    traces = [program.trace for program in programs]
    tasks = [task_vector(program.task) for program in programs]
    task = np.stack(tasks) if tasks else np.empty((0, len(task_vector(_NO_TASK))), np.float32)
    hardware = np.tile(hardware_vector(profile), (len(programs), 1))
    primitives, step_offsets, vectors = steps_and_vectors(traces)
    return Batch(
        stores=np.concatenate([none, *stores]),
        offsets=offsets,
        trace=vectors,
        steps=primitives,
        step_offsets=step_offsets,
        task=task,
        hardware=hardware,
    )


def examples_of(measurements: Sequence[Measurement], profile: DeviceProfile) -> Examples:
    """Measurements on a device, as the tuner has them; those without features are left out."""
    usable = [m for m in measurements if m.program.stores is not None]
    tasks = [m.program.task for m in usable]
    latencies = [np.nan if m.latency_s is None else m.latency_s for m in usable]

    def column(values: Iterable[str]) -> npt.NDArray[np.object_]:
        return np.array(list(values), object)

    return Examples(
        batch=batch_of([m.program for m in usable], profile),
        latency_s=np.array(latencies, np.float64),
        task=column(task.hash for task in tasks),
        device=column(m.device for m in usable),
        operator=column(task.operator for task in tasks),
        program=column(m.program.key for m in usable),
        shapes=column(shapes_as_text(task) for task in tasks),
    )


def assemble(
    store: RecordStore,
    over: Over = map,
    room_bytes: float = math.inf,
    devices: Collection[str] | None = None,
    spill_file: SpillFile | None = None,
) -> Assembled:
    """All usable records of a store; `map_examples` goes through them without keeping them.

    Args:
        store: Store whose records are assembled.
        over: Function that applies another to each piece, as for `map_examples`; `map` by default.
        room_bytes: Most bytes of features kept in memory, more go to a file; no limit by default.
        devices: Names of the wanted devices; None, the default, for all.
        spill_file: Where features are kept; None, the default, for one of `room_bytes`.

    Raises:
        DataError: The store is empty or damaged, or a device has records and no profile.
    """
    spill_file = spill_file or SpillFile(room_bytes)
    parts = [_spill(part, spill_file) for part in map_examples(store, itself, over, None, devices)]
    if not any(len(part.result) for part in parts):
        raise no_records(store)
    return Assembled(
        concatenate([part.result for part in parts], spill_file.whole()),
        sum(part.without_features for part in parts),
        sum(part.duplicates for part in parts),
    )


def no_records(store: RecordStore) -> DataError:
    """The error for a store from which nothing can be learnt."""
    return DataError(
        f"record store '{store.path}' without records of schedules to learn from",
        "at least one measured program with its trace",
        "add some with `hetfeat collect --out DIR`",
    )


@dataclass(frozen=True)
class Part(Generic[T]):
    """What became of one piece of a store.

    Attributes:
        result: Result of the function applied.
        rows: Number of records read.
        without_features: Number of these left out because no per-store features were extracted.
        duplicates: Number of these left out as older measurements of a program on the same device.
    """

    result: T
    rows: int
    without_features: int
    duplicates: int


def map_examples(
    store: RecordStore,
    function: Callable[[Examples], T],
    over: Over = map,
    with_stores: bool | None = None,
    devices: Collection[str] | None = None,
) -> Iterator[Part[T]]:
    """Applies a function to all usable records of a store, a bounded piece at a time.

    Memory is that of a piece and what `older_duplicates` needs.

    Args:
        store: Store whose records are gone through.
        function: Function called with the examples of each piece, perhaps in another process.
        over: Function that applies another to each piece and gives the results in order: `map`, the
            default, or `cluster.over(client)` for the machines of a Dask cluster.
        with_stores: Whether to leave out records without per-store features; None, the default, to
            do so where others have them. Kernels with parameters are left out in any case.
        devices: Names of the wanted devices; None, the default, for all.

    Raises:
        DataError: The store is damaged, or a device has records and no profile.
    """
    work, items = work_over(store, function, with_stores, devices)
    return over(work, items)


Item = tuple[Piece, pc.Expression | None, list[int]]
"""A piece of a store, what tells its usable records (None where all are), and which of these are
older duplicates."""


def work_over(
    store: RecordStore,
    function: Callable[[Examples], T],
    with_stores: bool | None = None,
    devices: Collection[str] | None = None,
) -> tuple[Callable[[Item], Part[T]], Iterator[Item]]:
    """What `map_examples` applies, and to what; its arguments are described there."""
    among = pc.scalar(True) if devices is None else pc.field("device").isin(list(devices))
    pieces = list(store.pieces(where=None if devices is None else among))
    if with_stores is None:
        having = among & WITH_STORES
        with_stores = any(t.num_rows for t in store.scan(["program"], where=having))

    def usable(piece: Piece) -> pc.Expression | None:
        if with_stores:  # which is a costly thing to read
            return None if piece.has_all("stores") else WITH_STORES
        return SCHEDULED

    def wanted(piece: Piece) -> pc.Expression:
        told = usable(piece)
        return among if told is None else among & told

    older = older_duplicates(pieces, wanted)
    work = partial(_work, function, among, store.path, store.devices())
    return work, ((piece, usable(piece), older.get(i, [])) for i, piece in enumerate(pieces))


def _spill(part: "Part[Examples]", spill_file: SpillFile) -> "Part[Examples]":
    features = spill_file.put(part.result.batch.loaded())
    return replace(part, result=replace(part.result, batch=features))


def _work(
    function: Callable[[Examples], T],
    among: pc.Expression,
    path: Path,
    profiles: dict[str, DeviceProfile],
    item: Item,
) -> Part[T]:
    piece, usable, older = item
    table = piece.read(_COLUMNS, among)
    rows = table if usable is None else table.filter(usable)
    left_out = table.num_rows - rows.num_rows
    if older:
        kept = np.ones(rows.num_rows, bool)
        kept[older] = False
        rows = rows.filter(pa.array(kept))
    return Part(function(_examples(rows, path, profiles)), table.num_rows, left_out, len(older))


def itself(value: T) -> T:
    """What it is given: the function for who wants all of it."""
    return value


def _examples(rows: pa.Table, path: Path, profiles: dict[str, DeviceProfile]) -> Examples:
    stores, offsets = _stores(rows["stores"], path)
    traces = rows["trace"].to_pylist()
    primitives, step_offsets, vectors = steps_and_vectors(traces)
    batch = Batch(
        stores=stores,
        offsets=offsets,
        trace=vectors,
        steps=primitives,
        step_offsets=step_offsets,
        task=_tasks(rows),
        hardware=_hardware(rows, path, profiles),
    )
    return Examples(
        batch=batch,
        latency_s=median_latencies(rows["latencies_s"]),
        task=_objects(rows["task"]),
        device=_objects(rows["device"]),
        operator=_objects(rows["operator"]),
        program=_objects(rows["program"]),
        shapes=_objects(rows["shapes"]),
    )


def _stores(column: pa.ChunkedArray, path: Path) -> tuple[Floats, Ints]:
    """Per-store features of all rows end to end, and where each row's begin."""
    lengths = list_lengths(column)
    if (lengths % FEATURES_PER_STORE).any():
        raise DataError(
            f"record store '{path}' with per-store features of another width",
            f"{FEATURES_PER_STORE} values a store",
            "collect or import the records again with this version of hetfeat",
        )
    # Chunk by chunk: one Arrow list array holds at most 2**31 values.
    parts = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    flat = np.concatenate([np.empty(0, np.float32), *parts])
    offsets = np.concatenate([[0], np.cumsum(lengths // FEATURES_PER_STORE)])
    return flat.reshape(-1, FEATURES_PER_STORE), offsets.astype(np.int64)


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


def _hardware(rows: pa.Table, path: Path, profiles: dict[str, DeviceProfile]) -> Floats:
    encoded = rows["device"].combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if missing := sorted(set(names) - set(profiles)):
        raise DataError(
            f"record store '{path}' without a profile of {', '.join(missing)}",
            "devices/NAME.yaml for each device with records",
            "add it with `hetfeat devices probe --out FILE`, or collect anew",
        )
    vectors = np.array([hardware_vector(profiles[name]) for name in names], np.float32)
    own: Floats = vectors.reshape(-1, len(HARDWARE))[encoded.indices.to_numpy()]
    return own


def _objects(column: pa.ChunkedArray) -> npt.NDArray[np.object_]:
    """Values of a column; equal ones are one object."""
    encoded = column.combine_chunks().dictionary_encode()
    values: npt.NDArray[np.object_] = np.array(encoded.dictionary.to_pylist(), object)
    objects: npt.NDArray[np.object_] = values[encoded.indices.to_numpy()]
    return objects


_NO_TASK = Task("", "", (), "float32", 0.0)
