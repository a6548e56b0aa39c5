"""The stored form of a record: an Arrow schema, a journal line, and the ways between."""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hetfeat.errors import DataError
from hetfeat.parsing import Count, decode
from hetfeat.records import Measurement, Program, Task

FEATURES_PER_STORE = 164

SCHEMA = pa.schema(
    [
        ("device", pa.string()),
        ("task", pa.string()),
        ("operator", pa.string()),
        ("shapes", pa.string()),
        ("dtype", pa.string()),
        ("flops", pa.float64()),
        ("program", pa.string()),
        ("trace", pa.string()),
        ("latencies_s", pa.list_(pa.float64())),
        ("error", pa.string()),
        ("unix_s", pa.float64()),
        ("versions", pa.string()),
        ("stores", pa.list_(pa.float32())),
    ]
)
"""Columns of a record; `stores` is the per-store features flattened to [stores * 164]."""


def to_row(measurement: Measurement) -> dict[str, Any]:
    """A measurement as a row of `SCHEMA`, in plain Python values."""
    program, task = measurement.program, measurement.program.task
    return {
        "device": measurement.device,
        "task": task.hash,
        "operator": task.operator,
        "shapes": shapes_as_text(task),
        "dtype": task.dtype,
        "flops": task.flops,
        "program": program.key,
        "trace": program.trace,
        "latencies_s": list(measurement.latencies_s),
        "error": measurement.error,
        "unix_s": measurement.unix_s,
        "versions": measurement.versions,
        "stores": None if program.stores is None else program.stores.ravel().tolist(),
    }


def shapes_as_text(task: Task) -> str:
    """A task's shapes as compact JSON."""
    return json.dumps(task.shapes, separators=(",", ":"))


def to_table(rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Rows of `to_row` as an Arrow table."""
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def amiss(table: pa.Table) -> str | None:
    """What of a table, of some columns of `SCHEMA`, is no record; None if all is well."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count and name not in ABSENT:
            return f"a record without {name}"
        if not all(_fits(name, chunk) for chunk in column.chunks if len(chunk)):
            return str(name)
    return None


ABSENT = {"error", "stores"}
"""Columns that a record may lack."""
_SHAPES = list[list[Count]]


def _fits(name: str, chunk: pa.Array) -> bool:
    """Whether values hold what later passes rely on; at every read, so each is a pass or two."""
    match name:
        case "program":
            return _is_hexadecimal(chunk)
        case "flops" | "unix_s":
            return bool(np.isfinite(chunk.to_numpy()).all())
        case "latencies_s":
            values = _elements(chunk).to_numpy(zero_copy_only=False)  # a missing one is NaN
            return not values.size or bool(values.min() > 0 and values.max() < np.inf)
        case "stores":
            lengths = np.diff(chunk.offsets.to_numpy())
            return not _elements(chunk).null_count and not np.any(lengths % FEATURES_PER_STORE)
        case "shapes":
            return all(map(_is_shapes, chunk.unique().to_pylist()))
    return True


def _is_hexadecimal(texts: pa.StringArray) -> bool:
    """Whether each text is 16 to 64 hexadecimal digits; quicker than an expression is."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    lengths = np.diff(ends)
    if lengths.min() < 16 or lengths.max() > 64:
        return False
    digits = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    return bool(((digits - ord("0") < 10) | (digits - ord("a") < 6)).all())  # below 0 is above 200


def _elements(lists: pa.ListArray) -> pa.Array:
    """The elements of all lists, not copied."""
    ends = lists.offsets.to_numpy()
    return lists.values.slice(ends[0], ends[-1] - ends[0])


@functools.lru_cache(4096)
def _is_shapes(text: str) -> bool:
    try:
        decode(text, _SHAPES, what="shapes", action="leave the record out")
    except DataError:
        return False
    return True


def task_of(row: Mapping[str, Any]) -> Task:
    """The task of a row, by the columns that tell of it."""
    shapes = tuple(tuple(shape) for shape in json.loads(row["shapes"]))
    return Task(row["task"], row["operator"], shapes, row["dtype"], row["flops"])


def from_table(table: pa.Table) -> Iterator[Measurement]:
    """The measurements of a table with all columns of `SCHEMA`."""
    tasks: dict[str, Task] = {}
    for row, stores in zip(table.drop(["stores"]).to_pylist(), stores_of(table), strict=True):
        task = tasks.get(row["task"])
        if task is None:
            task = tasks[row["task"]] = task_of(row)
        yield Measurement(
            Program(task, row["trace"], stores),
            row["device"],
            tuple(row["latencies_s"]),
            row["error"],
            row["unix_s"],
            row["versions"],
        )


def stores_of(table: pa.Table) -> Iterator[npt.NDArray[np.float32] | None]:
    """Per-store features of each row, float32 [stores, 164], or None."""
    for chunk in table["stores"].chunks:
        values = chunk.values.to_numpy(zero_copy_only=False)
        ends = chunk.offsets.to_numpy().tolist()
        valid = chunk.is_valid().to_pylist()
        for i, known in enumerate(valid):
            flat = values[ends[i] : ends[i + 1]]
            yield flat.reshape(-1, FEATURES_PER_STORE).copy() if known else None


def with_stores(table: pa.Table, features: Sequence[npt.NDArray[np.float32] | None]) -> pa.Table:
    """The table with other per-store features, `stores_of` of which gives `features` again."""
    known = np.array([one is not None for one in features])
    flat = [one.ravel() for one in features if one is not None]
    sizes = np.zeros(len(features) + 1, np.int32)
    sizes[1:][known] = [one.size for one in flat]
    offsets = pa.array(np.cumsum(sizes, dtype=np.int32), mask=np.append(~known, False))
    values = np.concatenate([np.empty(0, np.float32), *flat])
    lists = pa.ListArray.from_arrays(offsets, values).cast(SCHEMA.field("stores").type)
    return table.set_column(SCHEMA.get_field_index("stores"), SCHEMA.field("stores"), lists)


def list_lengths(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Length of each row's list, int64 [rows]; 0 where there is none."""
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    return np.asarray(lengths.to_numpy(), np.int64)


def median_latencies(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Median of each row's latencies, NaN where there are none."""
    lengths = list_lengths(column)
    values = pc.list_flatten(column).to_numpy()
    row = np.repeat(np.arange(len(lengths)), lengths)
    ordered = values[np.lexsort((values, row))]
    starts = np.cumsum(lengths) - lengths
    medians = np.full(len(lengths), np.nan)
    some = lengths > 0
    low, high = starts + (lengths - 1) // 2, starts + lengths // 2
    medians[some] = (ordered[low[some]] + ordered[high[some]]) / 2
    return medians
