"""Reads the records that packs bring back from their devices."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from hetfeat.dataset.importers.base import ImportedBatch, batch_of
from hetfeat.dataset.importers.files import head, read_lines
from hetfeat.dataset.pack_records import (
    LONGEST_LINE_BYTES,
    Line,
    RecordLine,
    RecordsHead,
    TaskLine,
)
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import HetfeatError
from hetfeat.parsing import decode
from hetfeat.records import Measurement, Program, Task

_ACTION = "run the pack again"


def read(files: Iterable[Path], device: str) -> Iterator[ImportedBatch]:
    """Records of packs, as measured on `device`; the profile that came with them has its name."""
    for path in files:
        yield from _Reading(device).batches(path)


def read_head(path: Path) -> RecordsHead:
    """What the first line of a file of records says, which gzip may have packed.

    Raises:
        DataError: There is no such file, or it is another one.
    """
    line, _, _ = head(path, LONGEST_LINE_BYTES).partition(b"\n")
    what = f"'{path}', which is no file of records of a pack"
    return decode(line, RecordsHead, what=what, action=_ACTION, max_bytes=LONGEST_LINE_BYTES)


class _Reading:
    """One file; what a line says stands for those after it."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._profile: DeviceProfile | None = None
        self._tasks: dict[str, Task] = {}

    def batches(self, path: Path) -> Iterator[ImportedBatch]:
        """A batch for each stretch of the file."""
        skipped: Counter[str] = Counter()
        for lines in read_lines(path, skipped, LONGEST_LINE_BYTES):
            modules: dict[str, str] = {}
            networks: dict[str, dict[str, int]] = {}
            measured: list[Measurement] = []
            for line in lines:
                try:
                    found = self._take(line, modules, networks)
                except (HetfeatError, ValueError) as error:
                    skipped[getattr(error, "given", str(error))] += 1
                    continue
                measured += found
            batch = batch_of(measured, skipped, self._profile, modules)
            yield dataclasses.replace(batch, networks=networks)
            skipped = Counter()
        if skipped:
            yield batch_of((), skipped)

    def _take(
        self, text: bytes, modules: dict[str, str], networks: dict[str, dict[str, int]]
    ) -> list[Measurement]:
        """The measurement of a line, if it is one.

        Raises:
            HetfeatError: It is no line of such a file.
            ValueError: It has no time and no error, or follows no line of its task.
        """
        line = decode(
            text, Line, what="no line of a pack's records", action="", max_bytes=LONGEST_LINE_BYTES
        )
        if isinstance(line, RecordsHead):
            given = {**line.profile, "name": self._device}
            self._profile = DeviceProfile.from_dict(given, "of a pack's records")
            networks.update(line.networks)
            return []
        if isinstance(line, TaskLine):
            self._tasks[line.task] = _task_of(line)
            modules[line.task] = line.module
            return []
        return [self._measurement(line)]

    def _measurement(self, line: RecordLine) -> Measurement:
        if self._profile is None:
            raise ValueError("a record before the line of its pack")
        if line.task not in self._tasks:
            raise ValueError("a record before the line of its task")
        program = Program(self._tasks[line.task], line.trace)
        latencies_s = tuple(line.latencies_s)
        return Measurement(
            program, self._device, latencies_s, line.error, line.unix_s, line.versions
        )


def _task_of(line: TaskLine) -> Task:
    """The task of a module, which must be what it is said to be.

    Raises:
        ValueError: It is no module, or of another task.
    """
    from hetfeat.workloads.relax import describe, load_workload

    try:
        task = describe(load_workload(line.module))
    except Exception as error:  # whatever TVM makes of what is no module
        raise ValueError("a task whose module TVM does not read") from error
    if task.hash != line.task:
        raise ValueError("a task whose module is another one")
    return task
