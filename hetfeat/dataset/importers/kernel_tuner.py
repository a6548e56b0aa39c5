"""Reads exhaustively measured kernel spaces: Kernel Tuner caches and the UCI SGEMM table.

A cache is JSON, plain or gzipped: of one run (`time`) or, as the benchmark hub publishes them, with
all timings of a configuration (`times`). The UCI table is a zip with one CSV of four runs.
"""

import contextlib
import hashlib
import itertools
import json
import lzma
import math
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
from pydantic import JsonValue

from hetfeat.dataset.importers.base import ImportedBatch, batch_of
from hetfeat.dataset.importers.files import ReadOptions, read_whole
from hetfeat.dataset.importers.sniff import UCI_TABLE, uci_table
from hetfeat.errors import DataError
from hetfeat.parsing import decode, printable
from hetfeat.records import ErrorKind, Measurement, Program, Task

KEYS = ("device_name", "kernel_name", "tune_params_keys", "cache")
ERRORS: dict[str, ErrorKind] = {
    "InvalidConfig": "schedule",
    "CompilationFailedConfig": "build",
    "RuntimeFailedConfig": "run",
}
_WHOLE = re.compile(r"-?[0-9]{1,18}")
"""JSON of a whole number that 64 bits hold."""
_FRACTION = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
FAILED_MS = 1e20
"""What older versions of Kernel Tuner write as the time of a failure."""
_DAMAGED = (
    *(OSError, EOFError, ValueError, RuntimeError, zlib.error, lzma.LZMAError),
    zipfile.BadZipFile,
)
"""What reading from a ZIP archive raises, `RuntimeError` where it is encrypted."""

Levels = tuple[tuple[str, ...] | None, ...]


@dataclass(frozen=True)
class Recording:
    """A kernel's configurations and their times on one device.

    Attributes:
        device: Name of the device as recorded.
        kernel: Name of the kernel.
        problem: Problem size of the kernel; empty where the file does not tell.
        parameters: Names of the parameters.
        configurations: Values of the parameters, int64 [configurations, parameters]; those of a
            parameter with `levels` are positions in these.
        levels: Values of each parameter that has others than whole numbers, in order, as JSON that
            tells `1`, `1.0`, `"1"` and `true` apart; None of whole numbers.
        times_ms: Timings in ms, float64 [configurations, timings]; NaN for failures.
        errors: Kind of failure of each configuration; None for one with a time.
    """

    device: str
    kernel: str
    problem: tuple[int, ...]
    parameters: tuple[str, ...]
    configurations: npt.NDArray[np.int64]
    times_ms: npt.NDArray[np.float64]
    errors: tuple[ErrorKind | None, ...]
    levels: Levels


def named(state: Sequence[int], levels: Levels) -> tuple[str, ...]:
    """Values as JSON, each as the file has it, of a row of `Recording.configurations`."""
    return tuple(
        str(value) if level is None else level[value]
        for value, level in zip(state, levels, strict=True)
    )


def read_recording(
    path: Path, *, max_bytes: int = 2**30, options: ReadOptions = ReadOptions()
) -> Recording:
    """A recorded space, by its file: `.json`, `.json.gz`, or the `.zip` of UCI SGEMM.

    Args:
        path: Path of the file.
        max_bytes: Longest cache that is read; 1 GB by default. The hub's of 20,000 configurations
            have 60 MB.
        options: How much a file may grow; as `ReadOptions` says by default.

    Raises:
        DataError: No such file, not a recorded space, cut short, empty, of mixed parameters, or
            without a single valid time.
    """
    if not path.is_file():
        raise DataError(f"no file '{path}'", "a recorded space", "correct the path")
    try:
        if path.suffix == ".zip":
            recording = _read_uci(path, options)
        else:
            recording = _read_cache(path, max_bytes, options)
    except (TypeError, ValueError, OverflowError) as error:
        raise _bad(path, f"a value of another kind ({error})") from error
    if np.isnan(recording.times_ms).all():
        raise _bad(path, "no configuration has a valid time")
    if len(np.unique(recording.configurations, axis=0)) < len(recording.configurations):
        raise _bad(path, "a configuration stands in it twice")
    return recording


def _read_cache(path: Path, max_bytes: int, options: ReadOptions) -> Recording:
    data = _load_json(path, max_bytes, options)
    if not isinstance(data, dict) or any(key not in data for key in KEYS):
        raise _bad(path, f"not an object with {', '.join(KEYS)}")
    names, cache = data["tune_params_keys"], data["cache"]
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise _bad(path, "its parameters have no names")
    if not isinstance(cache, dict) or not cache:
        raise _bad(path, "its cache is empty")
    rows = [_values(key, entry, names) for key, entry in cache.items()]
    if odd := next((k for k, row in zip(cache, rows, strict=True) if len(row) != len(names)), ""):
        said = f"configuration '{printable(odd)}'"
        raise _bad(path, f"{said} has not the {len(names)} parameters of the others")
    columns, levels = zip(*map(_coded, zip(*rows, strict=True)), strict=True)
    configurations = np.array(columns, np.int64).T
    entries = [_timings(entry) for entry in cache.values()]
    most = max(len(times) for times, _ in entries)
    times_ms = np.full((len(entries), most), np.nan)
    for row, (times, _) in zip(times_ms, entries, strict=True):
        row[: len(times)] = times
    errors = tuple(error for _, error in entries)
    device, kernel = str(data["device_name"]), str(data["kernel_name"])
    sizes = data.get("problem_size")  # one number of a kernel in one dimension, "callable" of some
    problem = tuple(n for n in (sizes if isinstance(sizes, list) else [sizes]) if type(n) is int)
    return Recording(
        device, kernel, problem, tuple(names), configurations, times_ms, errors, levels
    )


def _load_json(path: Path, max_bytes: int, options: ReadOptions) -> Any:
    text = read_whole(path, options)
    try:
        return _decoded(text, max_bytes)
    except DataError as error:
        # A cache is closed when the tuner ends: of an interrupted run it lacks its end.
        begun = text.rstrip().removesuffix(b",")
        with contextlib.suppress(DataError):
            return _decoded(begun + b"}}", max_bytes)
        raise _bad(path, f"not whole JSON {error.given.removeprefix('a cache ')}") from error


def _decoded(text: bytes, max_bytes: int) -> Any:
    return decode(text, JsonValue, what="a cache", action="fetch it again", max_bytes=max_bytes)


def _values(key: str, entry: Any, names: list[str]) -> list[str]:
    """A configuration's values as JSON: of its entry, or of its key, which has lost their types."""
    if isinstance(entry, dict) and all(name in entry for name in names):
        return [json.dumps(entry[name], sort_keys=True, allow_nan=False) for name in names]
    return [_as_json(text) for text in key.split(",")]


def _as_json(text: str) -> str:
    """What Python wrote as a value's text, as JSON."""
    text = text.strip()
    if _WHOLE.fullmatch(text):
        return str(int(text))
    if _FRACTION.fullmatch(text):
        return json.dumps(float(text), allow_nan=False)
    return {"True": "true", "False": "false", "None": "null"}.get(text) or json.dumps(text)


def _coded(column: tuple[str, ...]) -> tuple[list[int], tuple[str, ...] | None]:
    """Values as whole numbers: themselves, or else their positions among all of them in order."""
    if all(map(_WHOLE.fullmatch, column)):
        return [int(value) for value in column], None
    levels = tuple(sorted(set(column), key=_order))
    at = {value: position for position, value in enumerate(levels)}
    return [at[value] for value in column], levels


def _order(value: str) -> tuple[bool, float, str]:
    """Numbers by size, before all else by its text."""
    number = json.loads(value)
    if isinstance(number, int | float) and not isinstance(number, bool):
        return False, float(number), value
    return True, 0.0, value


def _timings(entry: Any) -> tuple[Sequence[float], ErrorKind | None]:
    """Timings of one configuration in ms, or none and why."""
    time = entry.get("time") if isinstance(entry, dict) else None
    if not _is_time(time):
        return (), ERRORS.get(str(time), "run")
    given = entry.get("times")
    times = [float(t) for t in given if _is_time(t)] if isinstance(given, list) else []
    return times or [float(time)], None


def _is_time(value: Any) -> TypeGuard[float]:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and 0 < value < FAILED_MS
    )


def _read_uci(path: Path, options: ReadOptions) -> Recording:
    import pandas as pd

    found = uci_table(path)
    if found is None:
        raise _bad(path, f"not a zip with {UCI_TABLE}")
    if options.is_bomb(found.file_size, found.compress_size):
        raise _bad(path, f"{UCI_TABLE} grows to {found.file_size} bytes")
    try:
        with zipfile.ZipFile(path) as archive, archive.open(found) as file:
            table = pd.read_csv(file)
        timed = [str(column) for column in table.columns if str(column).startswith("Run")]
        names = tuple(str(column) for column in table.columns if column not in timed)
        times_ms = table[timed].to_numpy(np.float64)
        configurations = table[list(names)].to_numpy(np.int64)
    except _DAMAGED as error:  # pandas' ParserError is a ValueError
        raise _bad(path, f"{UCI_TABLE} is not whole ({error})") from error
    if not timed or not len(table):
        raise _bad(path, "its table is empty")
    valid = np.isfinite(times_ms) & (times_ms > 0)
    errors: tuple[ErrorKind | None, ...] = tuple(None if ok else "run" for ok in valid.any(axis=1))
    times_ms = np.where(valid, times_ms, np.nan)
    device, problem = "GeForce GTX 680", (2048, 2048, 2048)
    levels = (None,) * len(names)
    return Recording(device, "Xgemm", problem, names, configurations, times_ms, errors, levels)


def _bad(path: Path, why: str) -> DataError:
    return DataError(
        f"'{path}': {why}",
        "a Kernel Tuner cache (.json, .json.gz) or the zip of UCI SGEMM",
        "give another file, or fetch this one again",
    )


def read(
    files: Iterable[Path], device: str, *, batch_records: int = 10_000
) -> Iterator[ImportedBatch]:
    """Kernel Tuner caches as records: a trace is the parameters by name, as JSON.

    They are of kernels, not of TVM's programs: no cost model of ours reads them, the store and its
    statistics do. A cache says nothing of the hardware but its name, so it brings no profile.

    Args:
        files: Paths of the caches.
        device: Name of the device of the records.
        batch_records: Records of a batch; 10,000 by default.
    """
    for path in files:
        try:
            recording = read_recording(path)
        except DataError as error:
            yield batch_of((), Counter({f"whole file: {error.given.partition(': ')[2]}": 1}))
            continue
        measurements = _measurements(recording, device)
        while part := list(itertools.islice(measurements, batch_records)):
            yield batch_of(part)


def _measurements(recording: Recording, device: str) -> Iterator[Measurement]:
    what = json.dumps([recording.kernel, recording.problem, recording.parameters])
    digest = hashlib.sha256(what.encode()).hexdigest()[:16]
    task = Task(digest, recording.kernel, (recording.problem,), "float32", 0.0)
    rows = zip(recording.configurations.tolist(), recording.times_ms, recording.errors, strict=True)
    names = [json.dumps(name) for name in recording.parameters]
    for state, times_ms, error in rows:
        values = named(state, recording.levels)
        parts = [f"{name}: {value}" for name, value in zip(names, values, strict=True)]
        latencies_s = tuple((times_ms[~np.isnan(times_ms)] / 1e3).tolist())
        program = Program(task, f"{{{', '.join(parts)}}}")
        yield Measurement(program, device, latencies_s, error, 0.0, "kernel tuner")
