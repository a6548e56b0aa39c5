"""MetaSchedule JSON databases: of this TVM through TVM, older ones from their JSON alone.

A record is `[workload index, [[instructions, decisions], run seconds, target, arguments]]`, a
workload `[hash, base64 of its module]`. What failed does not say why and is kept as `run`; when
it was measured is not said either, and is kept as 0.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from hetfeat.dataset.importers.base import ImportedBatch, batch_of
from hetfeat.dataset.importers.files import read_lines
from hetfeat.dataset.importers.metaschedule_targets import KINDS, profile_of
from hetfeat.dataset.importers.metaschedule_workloads import Workloads
from hetfeat.dataset.importers.sniff import METASCHEDULE_RECORDS, look
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError
from hetfeat.parsing import decode
from hetfeat.records import Measurement, Program

FAILED_S = 1e9
"""TVM writes 1e10 seconds for a program that failed."""
RENAMED = {"GetBlock": "GetSBlock"}
"""Instructions of older versions that have another name now."""


def read(
    files: Iterable[Path], device: str, *, line_bytes: int = 2**24, batch_records: int = 1024
) -> Iterator[ImportedBatch]:
    """See `base.Importer`: the records of each database, with its modules and networks.

    Args:
        files: Paths of the databases.
        device: Name of the device of the records.
        line_bytes: Longest line that is read; 16 MB by default: traces of large graphs and their
            modules are longer than other formats' lines.
        batch_records: Records of a batch; 1024 by default.

    Raises:
        DataError: A database without its file of workloads.
    """
    for file in files:
        if look(file)[1] == METASCHEDULE_RECORDS:
            yield from _database(file, device, line_bytes, batch_records)


def _database(
    records: Path, device: str, line_bytes: int, batch_records: int
) -> Iterator[ImportedBatch]:
    skipped: Counter[str] = Counter()
    chunks = read_lines(_workload_file(records), skipped, line_bytes)
    workloads = Workloads(line for chunk in chunks for line in chunk)
    networks = workloads.networks(records.with_name("networks.json"))
    waiting: list[Measurement] = []
    target: dict[str, Any] = {}
    profile: DeviceProfile | None = None

    def batch() -> ImportedBatch:
        made = batch_of(waiting, Counter(skipped), profile, workloads.new_modules())
        waiting.clear()
        skipped.clear()
        return made

    for line in (line for chunk in read_lines(records, skipped, line_bytes) for line in chunk):
        try:
            measurement, found = _parsed(line, workloads, device, line_bytes)
        except _Skip as reason:
            skipped[str(reason)] += 1
            continue
        if len(waiting) == batch_records or (waiting and found != target):
            yield batch()
        if found != target:
            target, profile = found, profile_of(device, found)
        if profile is None:
            skipped[f"target of another kind than {', '.join(KINDS)}"] += 1
        else:
            waiting.append(measurement)
    yield replace(batch(), networks=networks)


class _Skip(Exception):
    """Why a line is no record."""


def _parsed(
    line: bytes, workloads: Workloads, device: str, line_bytes: int
) -> tuple[Measurement, dict[str, Any]]:
    try:
        value = decode(line, JsonValue, what="a line", action="skip it", max_bytes=line_bytes)
    except DataError:
        raise _Skip("line that is not JSON") from None
    match value:
        case [
            int(index),
            [[list(instructions), list(decisions)], list(seconds), dict(target), list(arguments)],
        ] if not isinstance(index, bool):
            pass
        case _:
            raise _Skip("line that is no record")
    try:
        workload = workloads.task(index, arguments)
    except ValueError as error:
        raise _Skip(str(error)) from None
    latencies = _latencies(seconds)
    trace = _trace(instructions, decisions)
    measurement = Measurement(
        Program(workload.task, trace),
        device,
        latencies,
        None if latencies else "run",
        0.0,
        workload.versions,
    )
    return measurement, target


def _latencies(seconds: list[Any]) -> tuple[float, ...]:
    """Latencies of a record, none if it failed."""
    if not seconds:
        raise _Skip("record without costs")
    if not all(isinstance(s, int | float) and not isinstance(s, bool) for s in seconds):
        raise _Skip("cost that is no number")
    if not all(0 < s < math.inf for s in seconds):
        raise _Skip("cost that is not positive and finite")
    return tuple(map(float, seconds)) if max(seconds) < FAILED_S else ()


def _trace(instructions: list[Any], decisions: list[Any]) -> str:
    """The trace as compact JSON, instructions called as this TVM calls them."""
    if not all(map(_is_instruction, instructions)):
        raise _Skip("trace that is none")
    for decision in decisions:
        match decision:
            case [int(index), _] if 0 <= index < len(instructions):
                pass
            case _:
                raise _Skip("trace that is none")
    renamed = [[RENAMED.get(kind, kind), *rest] for kind, *rest in instructions]
    try:
        return json.dumps([renamed, decisions], separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise _Skip("trace with a number that is not finite") from None


def _is_instruction(value: Any) -> bool:
    """Whether this is `[kind, inputs, attributes, outputs]`; called for each of millions."""
    return type(value) is list and [type(part) for part in value] == [str, list, list, list]


def _workload_file(records: Path) -> Path:
    """The workloads that belong to a file of records, gzip or not."""
    name = records.name.replace("tuning_record", "workload")
    plain = name.removesuffix(".gz")
    for other in dict.fromkeys((name, plain, f"{plain}.gz")):
        if other != records.name and records.with_name(other).is_file():
            return records.with_name(other)
    missing = name if name != records.name else "database_workload.json"
    raise DataError(
        f"MetaSchedule records '{records}' without their workloads '{missing}'",
        "database_tuning_record.json and database_workload.json in one folder, gzip or not",
        "copy the missing file there",
    )
