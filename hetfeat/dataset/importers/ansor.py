"""Records of TVM's auto-scheduler, of which TenSet is made: JSON lines of versions 0.2 to 0.6."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from hetfeat.dataset.importers.ansor_operators import operator_of
from hetfeat.dataset.importers.ansor_steps import Interpreter, Uninterpretable, take_numbers
from hetfeat.dataset.importers.ansor_targets import profile_of
from hetfeat.dataset.importers.ansor_tasks import UNKNOWN, task_of
from hetfeat.dataset.importers.base import ImportedBatch
from hetfeat.dataset.importers.files import ReadOptions, read_lines
from hetfeat.dataset.schema import SCHEMA, shapes_as_text
from hetfeat.devices.profile import DeviceProfile
from hetfeat.records import ErrorKind, Task

FAILED_S = 1e10
"""Cost of a program that failed."""
ERRORS: dict[int, ErrorKind] = {
    1: "schedule",
    2: "build",
    3: "build",
    4: "run",
    5: "wrong",
    6: "timeout",
    7: "timeout",
    8: "run",
}
VERSIONS = ("v0.2", "v0.3", "v0.4", "v0.5", "v0.6")
_INT = {int}
_DTYPE = re.compile(r"(?:float|u?int|bfloat)(?:4|8|16|32|64)")


@dataclass(frozen=True)
class _TaskHead:
    """What the lines of one task have in common."""

    task: Task
    shapes: str
    profile: DeviceProfile


@dataclass
class _Skeleton:
    """Programs whose steps differ in numbers only."""

    rows: list[int] = field(default_factory=list)
    numbers: list[list[int]] = field(default_factory=list)


@dataclass
class _Lines:
    """Lines read and not yet interpreted, as columns."""

    heads: list[_TaskHead] = field(default_factory=list)
    costs: list[list[float]] = field(default_factory=list)
    errors: list[str | None] = field(default_factory=list)
    unix_s: list[float] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    skeletons: dict[bytes, _Skeleton] = field(default_factory=dict)


class _NoRecord(ValueError):
    """A line that is no record, and why."""


def read(
    files: Iterable[Path],
    device: str,
    *,
    batch_lines: int = 16_384,
    batch_bytes: int = 2**25,
    options: ReadOptions = ReadOptions(),
) -> Iterator[ImportedBatch]:
    """Reads log files of the auto-scheduler; see `base.Importer`.

    Args:
        files: Paths of the log files.
        device: Name of the device of the records.
        batch_lines: Lines interpreted together; 16,384 by default: the more, the more programs
            share a skeleton.
        batch_bytes: Most text of a batch, where lines are long; 32 MB by default.
        options: How much is read at once; as `ReadOptions` says by default.
    """
    skipped: Counter[str] = Counter()
    lines, heads, size = _Lines(), _Heads(device, batch_lines), 0
    for path in files:
        hint = _DTYPE.search(path.name)
        dtype = hint.group() if hint else "float32"
        for chunk in read_lines(path, skipped, options=options):
            for line in chunk:
                if line.lstrip().startswith(b"#"):
                    continue
                try:
                    _parse(line, dtype, heads, lines)
                except _NoRecord as error:
                    skipped[str(error)] += 1
            size += sum(map(len, chunk))
            if len(lines.heads) >= batch_lines or size >= batch_bytes:
                yield from _batches(lines, skipped, device, heads.operators)
                lines, size = _Lines(), 0
    yield from _batches(lines, skipped, device, heads.operators)


class _Heads:
    """Tasks and profiles by their text in a line, most of which repeat the line before."""

    def __init__(self, device: str, most: int) -> None:
        self.operators: dict[str, str] = {}
        """Operators by task hash, for keys that do not tell; as the first batch of a task says."""
        self._device, self._most = device, most
        self._heads: dict[tuple[str, bytes], _TaskHead] = {}
        self._profiles: dict[tuple[Any, ...], DeviceProfile] = {}

    def find(self, part: list[Any], dtype: str) -> _TaskHead:
        key = dtype, orjson.dumps(part)
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) > self._most:
                self._heads.clear()
            head = self._heads[key] = self._make(part, dtype)
        return head

    def _make(self, part: list[Any], dtype: str) -> _TaskHead:
        if type(part) is not list or len(part) not in (2, 3, 5, 6):
            raise _NoRecord("task of another form")
        workload, target, hardware = part[0], part[1], part[2] if len(part) > 2 else None
        if [type(workload), type(target)] != [str, str] or type(hardware) not in (list, NoneType):
            raise _NoRecord("task of another form")
        try:
            task = task_of(workload, dtype)
            made = profile_of(self._device, target, hardware)
        except ValueError as error:
            raise _NoRecord(f"task with {error}") from error
        profile = self._profiles.setdefault((target, *(hardware or ())), made)
        return _TaskHead(task, shapes_as_text(task), profile)


def _parse(line: bytes, dtype: str, heads: _Heads, lines: _Lines) -> None:
    """Adds a line to `lines`.

    Raises:
        _NoRecord: Why it is none.
    """
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        unusual = re.search(rb"(?i)[\[ ,:]-?(nan|inf)", line)
        raise _NoRecord("number that is not finite" if unusual else "not JSON") from error
    try:
        (task_part, (_, steps)), (costs, error_no, _, unix_s) = record["i"], record["r"]
        version = record["v"]
    except (KeyError, TypeError, ValueError) as error:
        raise _NoRecord(_other_form(record)) from error
    if type(steps) is not list:
        raise _NoRecord("steps of another form")
    try:
        numbers = take_numbers(steps)
        skeleton = orjson.dumps(steps)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise _NoRecord("steps of another form") from error
    if version not in VERSIONS:
        raise _NoRecord("record of another version")
    if type(error_no) is not int or not (0 <= error_no <= 8) or not _is_number(unix_s):
        raise _NoRecord("result of another form")
    if numbers and set(map(type, numbers)) != _INT:
        raise _NoRecord("split by what is no whole number")
    failed = ERRORS.get(error_no) or _failure(costs)
    head = heads.find(task_part, dtype)
    same_steps = lines.skeletons.get(skeleton)
    if same_steps is None:
        same_steps = lines.skeletons[skeleton] = _Skeleton()
    same_steps.rows.append(len(lines.heads))
    same_steps.numbers.append(numbers)
    lines.heads.append(head)
    lines.costs.append([] if failed else costs)
    lines.errors.append(failed)
    lines.unix_s.append(float(unix_s))
    lines.versions.append(version)


def _failure(costs: Any) -> ErrorKind | None:
    """Whether costs without an error are those of a failure.

    Raises:
        _NoRecord: They are no costs.
    """
    if type(costs) is not list or not costs:
        raise _NoRecord("result without costs")
    for cost in costs:
        if not _is_number(cost) or not cost > 0:
            raise _NoRecord("cost that is no positive number")
    return "run" if max(costs) >= FAILED_S else None


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _other_form(record: Any) -> str:
    if isinstance(record, dict) and "input" in record and "config" in record:
        return "AutoTVM record"
    return "record of another form"


def _batches(
    lines: _Lines, skipped: Counter[str], device: str, operators: dict[str, str]
) -> Iterator[ImportedBatch]:
    """Interprets lines: a batch for each hardware they were measured on; `skipped` is emptied."""
    traces = [""] * len(lines.heads)
    said: dict[str, set[str]] = {}
    for text, skeleton in lines.skeletons.items():
        steps = orjson.loads(text)
        if _interpret(steps, skeleton, traces, skipped):
            operator = operator_of(steps)
            for task in {lines.heads[row].task.hash for row in skeleton.rows}:
                said.setdefault(task, set()).add(operator)
    for task, names in said.items():
        names.discard(UNKNOWN)  # other sketches of a task are not tiled
        operators.setdefault(task, names.pop() if len(names) == 1 else UNKNOWN)
    by_profile: dict[int, list[int]] = {}
    for row, (head, trace) in enumerate(zip(lines.heads, traces, strict=True)):
        if trace:
            by_profile.setdefault(id(head.profile), []).append(row)
    for rows in by_profile.values():
        table = _table(lines, traces, rows, device, operators)
        yield ImportedBatch(table, profile=lines.heads[rows[0]].profile)
    yield ImportedBatch(SCHEMA.empty_table(), Counter(skipped))
    skipped.clear()


def _interpret(
    steps: list[Any], skeleton: _Skeleton, traces: list[str], skipped: Counter[str]
) -> bool:
    """Sets the traces of a skeleton's programs, and counts those that have none.

    Returns:
        Whether the steps could be interpreted.
    """
    rows = np.array(skeleton.rows)
    interpreter = Interpreter(np.array(skeleton.numbers, np.float64))
    good = np.ones(len(rows), bool)
    try:
        interpreter.run(steps)
    except Uninterpretable as error:
        skipped[str(error)] += len(rows)
        return False
    for reason, where in interpreter.wrong:
        skipped[reason] += int((good & where).sum())
        good &= ~where
    for row, trace in zip(rows[good].tolist(), interpreter.traces(good), strict=True):
        traces[row] = trace
    return True


def _table(
    lines: _Lines, traces: list[str], rows: list[int], device: str, operators: dict[str, str]
) -> pa.Table:
    """The records of some rows, as the store keeps them."""
    heads = {id(head): head for head in lines.heads}
    order = {key: position for position, key in enumerate(heads)}
    which = [order[id(lines.heads[row])] for row in rows]
    digests = [hashlib.sha256(f"{head.task.hash}\n".encode()) for head in heads.values()]
    chosen = [traces[row] for row in rows]
    programs = []
    for head, trace in zip(which, chosen, strict=True):
        digest = digests[head].copy()  # what `Program.key` is
        digest.update(trace.encode())
        programs.append(digest.hexdigest()[:24])
    taken = pa.array(which, pa.int32())
    tasks = [head.task for head in heads.values()]
    named = [
        operators.get(task.hash, UNKNOWN) if task.operator == UNKNOWN else task.operator
        for task in tasks  # some of which have no interpreted line here
    ]
    columns = {
        "device": pa.repeat(device, len(rows)),
        "task": pa.array([task.hash for task in tasks]).take(taken),
        "operator": pa.array(named).take(taken),
        "shapes": pa.array([head.shapes for head in heads.values()]).take(taken),
        "dtype": pa.array([task.dtype for task in tasks]).take(taken),
        "flops": pa.array([task.flops for task in tasks], pa.float64()).take(taken),
        "program": programs,
        "trace": chosen,
        "latencies_s": [lines.costs[row] for row in rows],
        "error": [lines.errors[row] for row in rows],
        "unix_s": [lines.unix_s[row] for row in rows],
        "versions": [f"ansor {lines.versions[row]}" for row in rows],
        "stores": pa.nulls(len(rows), SCHEMA.field("stores").type),
    }
    return pa.table(columns, schema=SCHEMA)
