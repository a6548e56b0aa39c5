"""The file of records that a pack's run adds to; `dataset.pack_records` says what its lines are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hetfeat.dataset.files import append_lines
from hetfeat.dataset.pack_records import (
    LONGEST_LINE_BYTES,
    RECORDS_FORMAT,
    Line,
    RecordLine,
    RecordsHead,
    TaskLine,
)
from hetfeat.errors import DataError
from hetfeat.packs.archive import Pack
from hetfeat.packs.manifest import PackedTask
from hetfeat.parsing import decode
from hetfeat.records import Measurement


def read_lines(out: Path, pack: Pack) -> list[RecordsHead | TaskLine | RecordLine]:
    """The lines of a pack's records that are there already.

    Raises:
        DataError: They are of another pack, or something else.
    """
    what, action = f"'{out}' with a line that is no record of a pack", "choose another --out"
    texts = out.read_bytes().split(b"\n")[:-1] if out.is_file() else []  # without a torn last line
    lines = [
        decode(text, Line, what=what, action=action, max_bytes=LONGEST_LINE_BYTES) for text in texts
    ]
    if lines and (not isinstance(lines[0], RecordsHead) or lines[0].pack != pack.digest):
        raise DataError(f"'{out}' of another pack", "records of this one", action)
    return lines


class RecordsFile:
    """A file of records, and what it holds.

    Args:
        out: Path of the file; it gets its first line if it has none.
        lines: What is in it.
        pack: Pack of the records.
        machine: Words for the machine that measures.
    """

    def __init__(
        self,
        out: Path,
        lines: Sequence[RecordsHead | TaskLine | RecordLine],
        pack: Pack,
        machine: str,
    ) -> None:
        self._out = out
        self._tasks = {line.task for line in lines if isinstance(line, TaskLine)}
        self.held = {(line.task, line.trace) for line in lines if isinstance(line, RecordLine)}
        """Task and trace of each record."""
        if not lines:
            head = RecordsHead(
                pack_records=RECORDS_FORMAT,
                pack=pack.digest,
                profile=pack.manifest.profile,
                networks=pack.manifest.networks,
                machine=machine,
            )
            append_lines(out, [head.model_dump()])

    def append(self, task: PackedTask, measured: Measurement) -> None:
        """Adds a measurement of a task; it is on the disk when this returns."""
        lines: list[dict[str, Any]] = []
        if task.hash not in self._tasks:
            lines.append(TaskLine(task=task.hash, module=task.module).model_dump())
            self._tasks.add(task.hash)
        line = RecordLine(
            task=task.hash,
            trace=measured.program.trace,
            latencies_s=list(measured.latencies_s),
            error=measured.error,
            unix_s=measured.unix_s,
            versions=measured.versions,
        )
        append_lines(self._out, [*lines, line.model_dump()])
