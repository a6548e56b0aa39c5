"""Features beyond memory: in a file, some programs in memory at a time."""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import IO, TypeVar

import numpy as np

from hetfeat.devices import host
from hetfeat.features.batch import Batch, Features, Ints, joined

T = TypeVar("T")


def room_bytes(share: float = 1 / 16) -> float:
    """What features may take of the memory that is free now, in this machine or its container.

    Args:
        share: Share of the free memory; 1/16 by default: training in memory peaks at four to eight
            times its features (docs/models.md).
    """
    return host.memory_free_bytes() * share


def scratch_folder() -> str:
    """Where large temporary files go: TMPDIR, else a disk; /tmp may be memory."""
    return os.environ.get("TMPDIR", "/var/tmp")


class SpillFile:
    """Keeps batches: in memory while they fit, else in a file without a name, in parts.

    The file is gone with this process, however it ends.

    Args:
        room_bytes: Most bytes of features that may stay in memory.
        part_bytes: Bytes of a part, which has up to twice as many; 32 MB by default: each costs
            trees some time in every round, and a few are in memory at once.
    """

    def __init__(self, room_bytes: float, part_bytes: int = 2**25) -> None:
        self._room, self._part, self._held = room_bytes, part_bytes, 0
        self._waiting: list[Batch] = []
        self._programs = 0
        self._positions: list[int] = []
        self._starts = [0]

    def put(self, batch: Batch) -> "SpilledBatch":
        """Takes the next programs; they can be read back after `whole`."""
        self._waiting.append(batch)
        self._held += batch.nbytes
        self._programs += len(batch)
        if self._held > self._room:
            self._write_parts()
        return SpilledBatch(self, np.arange(self._programs - len(batch), self._programs))

    def whole(self) -> Features:
        """All programs."""
        if self._held <= self._room:
            return joined(self._waiting)
        if self._waiting:
            self._write(self._waiting)
        self._waiting = []
        return SpilledBatch(self, np.arange(self._programs))

    def read(self, programs: Ints) -> Batch:
        """Some programs of one part, numbered as they came."""
        part = int(self.part_of(programs).max(initial=0))
        self._file.seek(self._positions[part])
        arrays = {f.name: np.load(self._file, allow_pickle=False) for f in fields(Batch)}
        return Batch(**arrays).take(programs - self._starts[part])

    def part_of(self, programs: Ints) -> Ints:
        """Which part each program lies in."""
        return np.searchsorted(self._starts, programs, side="right") - 1

    @cached_property
    def _file(self) -> IO[bytes]:
        return tempfile.TemporaryFile(dir=scratch_folder())

    def _write_parts(self) -> None:
        part: list[Batch] = []
        for batch in self._waiting:
            for rows in np.array_split(np.arange(len(batch)), 1 + batch.nbytes // self._part):
                part.append(batch.take(rows))
                if sum(each.nbytes for each in part) >= self._part:
                    self._write(part)
                    part = []
        self._waiting = part

    def _write(self, batches: list[Batch]) -> None:
        part = joined(batches)
        self._positions.append(self._file.seek(0, os.SEEK_END))
        for field in fields(Batch):
            np.save(self._file, getattr(part, field.name), allow_pickle=False)
        self._starts.append(self._starts[-1] + len(part))


@dataclass(frozen=True)
class SpilledBatch:
    """Programs of a spill file, int64 [n]; nothing is read before `loaded`."""

    spill_file: SpillFile
    programs: Ints

    def __len__(self) -> int:
        return len(self.programs)

    def take(self, index: Ints) -> "SpilledBatch":
        """The programs of `index` (integer positions), in that order."""
        return SpilledBatch(self.spill_file, self.programs[index])

    def pieces(self) -> "Sequence[SpilledBatch]":
        """The same in pieces of one part each: few where the order is that of the file."""
        borders = np.flatnonzero(np.diff(self.spill_file.part_of(self.programs))) + 1
        return [SpilledBatch(self.spill_file, part) for part in np.split(self.programs, borders)]

    def each(self, function: Callable[[Batch], T]) -> list[T]:
        """What a function says of each of `pieces`, one of which is in memory at a time."""
        return [function(piece.loaded()) for piece in self.pieces()]

    def loaded(self) -> Batch:
        """All of them in memory."""
        return joined([self.spill_file.read(piece.programs) for piece in self.pieces()])
