"""Reads exhaustively measured kernel spaces: Kernel Tuner caches and the UCI SGEMM table.

A cache is JSON, plain or gzipped: of one run (`time`) or, as the benchmark hub publishes them, with
all timings of a configuration (`times`). The UCI table is a zip with one CSV of four runs.
"""

import hashlib
import itertools
import json
import math
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetfeat.dataset.importers.base import Batch, batch_of
from hetfeat.dataset.importers.files import is_bomb, read_whole
from hetfeat.dataset.importers.looks import UCI_TABLE, uci_table
from hetfeat.errors import DataError
from hetfeat.records import ErrorKind, Measurement, Program, Task

KEYS = ("device_name", "kernel_name", "tune_params_keys", "cache")
ERRORS: dict[str, ErrorKind] = {
    "InvalidConfig": "schedule",
    "CompilationFailedConfig": "build",
    "RuntimeFailedConfig": "run",
}
BATCH = 10_000
FAILED_MS = 1e20
"""What older versions of Kernel Tuner write as the time of a failure."""


@dataclass(frozen=True)
class Recording:
    """A kernel's configurations and their times on one device.

    Attributes:
        device: Name of the device as recorded.
        kernel: Name of the kernel.
        problem: Its problem size, empty where the file does not tell.
        parameters: Names of the parameters.
        configurations: Their values, int64 [configurations, parameters].
        times_ms: Timings in ms, float64 [configurations, timings]; NaN for failures.
        errors: Why each configuration has no time, or None.
    """

    device: str
    kernel: str
    problem: tuple[int, ...]
    parameters: tuple[str, ...]
    configurations: npt.NDArray[np.int64]
    times_ms: npt.NDArray[np.float64]
    errors: tuple[ErrorKind | None, ...]


def read_recording(path: Path) -> Recording:
    """A recorded space, by its file: `.json`, `.json.gz`, or the `.zip` of UCI SGEMM.

    Raises:
        DataError: No such file, not a recorded space, cut short, empty, of mixed parameters, or
            without a single valid time.
    """
    if not path.is_file():
        raise DataError(f"no file '{path}'", "a recorded space", "correct the path")
    try:
        recording = _read_uci(path) if path.suffix == ".zip" else _read_cache(path)
    except (TypeError, OverflowError) as error:
        raise _bad(path, f"a value of another kind ({error})") from error
    if np.isnan(recording.times_ms).all():
        raise _bad(path, "no configuration has a valid time")
    if len(np.unique(recording.configurations, axis=0)) < len(recording.configurations):
        raise _bad(path, "a configuration stands in it twice")
    return recording


def _read_cache(path: Path) -> Recording:
    data = _load_json(path)
    if not isinstance(data, dict) or any(key not in data for key in KEYS):
        raise _bad(path, f"not an object with {', '.join(KEYS)}")
    names, cache = tuple(data["tune_params_keys"]), data["cache"]
    if not isinstance(cache, dict) or not cache:
        raise _bad(path, "its cache is empty")
    rows = [key.split(",") for key in cache]
    if odd := next(
        (key for key, row in zip(cache, rows, strict=True) if len(row) != len(names)), ""
    ):
        raise _bad(path, f"configuration '{odd}' has not the {len(names)} parameters of the others")
    try:
        configurations = np.array([[int(value) for value in row] for row in rows], np.int64)
    except ValueError as error:
        raise _bad(path, f"a parameter that is no whole number ({error})") from error
    entries = [_timings(entry) for entry in cache.values()]
    most = max(len(times) for times, _ in entries)
    times_ms = np.full((len(entries), most), np.nan)
    for row, (times, _) in zip(times_ms, entries, strict=True):
        row[: len(times)] = times
    errors = tuple(error for _, error in entries)
    device, kernel = str(data["device_name"]), str(data["kernel_name"])
    sizes = data.get("problem_size")  # one number of a kernel in one dimension, "callable" of some
    problem = tuple(n for n in (sizes if isinstance(sizes, list) else [sizes]) if type(n) is int)
    return Recording(device, kernel, problem, names, configurations, times_ms, errors)


def _load_json(path: Path) -> Any:
    try:
        return json.loads(read_whole(path))
    except ValueError as error:
        raise _bad(path, f"not whole JSON ({error})") from error


def _timings(entry: Any) -> tuple[Sequence[float], ErrorKind | None]:
    """Timings of one configuration in ms, or none and why."""
    time = entry.get("time") if isinstance(entry, Mapping) else None
    if not _is_time(time):
        return (), ERRORS.get(str(time), "run")
    times = [t for t in entry.get("times") or () if _is_time(t)]
    return times or [time], None


def _is_time(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and 0 < value < FAILED_MS
    )


def _read_uci(path: Path) -> Recording:
    import pandas as pd

    found = uci_table(path)
    if found is None:
        raise _bad(path, f"not a zip with {UCI_TABLE}")
    if is_bomb(found.file_size, found.compress_size):
        raise _bad(path, f"{UCI_TABLE} grows to {found.file_size} bytes")
    try:
        with zipfile.ZipFile(path) as archive, archive.open(found) as file:
            table = pd.read_csv(file)
        timed = [str(column) for column in table.columns if str(column).startswith("Run")]
        names = tuple(str(column) for column in table.columns if column not in timed)
        times_ms = table[timed].to_numpy(np.float64)
        configurations = table[list(names)].to_numpy(np.int64)
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error, pd.errors.ParserError) as error:
        raise _bad(path, f"{UCI_TABLE} is not whole ({error})") from error
    if not timed or not len(table):
        raise _bad(path, "its table is empty")
    valid = np.isfinite(times_ms) & (times_ms > 0)
    errors: tuple[ErrorKind | None, ...] = tuple(None if ok else "run" for ok in valid.any(axis=1))
    times_ms = np.where(valid, times_ms, np.nan)
    device, problem = "GeForce GTX 680", (2048, 2048, 2048)
    return Recording(device, "Xgemm", problem, names, configurations, times_ms, errors)


def _bad(path: Path, why: str) -> DataError:
    return DataError(
        f"'{path}': {why}",
        "a Kernel Tuner cache (.json, .json.gz) or the zip of UCI SGEMM",
        "give another file, or fetch this one again",
    )


def read(files: Iterable[Path], device: str) -> Iterator[Batch]:
    """Kernel Tuner caches as records: a trace is the parameters by name, as JSON.

    They are of kernels, not of TVM's programs: no cost model of ours reads them, the store and its
    statistics do. A cache says nothing of the hardware but its name, so it brings no profile.
    """
    for path in files:
        try:
            recording = read_recording(path)
        except DataError as error:
            yield batch_of((), Counter({f"whole file: {error.given.partition(': ')[2]}": 1}))
            continue
        measurements = _measurements(recording, device)
        while part := list(itertools.islice(measurements, BATCH)):
            yield batch_of(part)


def _measurements(recording: Recording, device: str) -> Iterator[Measurement]:
    what = json.dumps([recording.kernel, recording.problem, recording.parameters])
    digest = hashlib.sha256(what.encode()).hexdigest()[:16]
    task = Task(digest, recording.kernel, (recording.problem,), "float32", 0.0)
    rows = zip(recording.configurations.tolist(), recording.times_ms, recording.errors, strict=True)
    for values, times_ms, error in rows:
        trace = json.dumps(dict(zip(recording.parameters, values, strict=True)))
        latencies_s = tuple((times_ms[~np.isnan(times_ms)] / 1e3).tolist())
        yield Measurement(Program(task, trace), device, latencies_s, error, 0.0, "kernel tuner")
