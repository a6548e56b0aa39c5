"""Features beyond memory: in a file, some programs in memory at a time."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from hetfeat.devices import host
from hetfeat.features.batch import Batch, joined

Ints = npt.NDArray[np.int64]


MEMORY_SHARE = 8
"""Training takes three to five times the memory of its features (docs/models.md), reading and
dividing them twice; the rest is for others."""


def room_bytes() -> float:
    """What features may take of the memory that is free now, in this machine or its cgroup."""
    return host.memory_free_bytes() / MEMORY_SHARE


def scratch_folder() -> str:
    """Where large temporary files go: TMPDIR, else a disk; /tmp may be memory."""
    return os.environ.get("TMPDIR", "/var/tmp")


class Shelf:
    """A file without a name, gone with this process however it ends; batches are its parts."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(dir=scratch_folder())  # noqa: SIM115  # as long as this
        self._positions: list[int] = []
        self._starts = [0]

    def put(self, batch: Batch) -> "SpilledBatch":
        """Writes a part."""
        self._positions.append(self._file.seek(0, os.SEEK_END))
        for field in fields(Batch):
            np.save(self._file, getattr(batch, field.name), allow_pickle=False)
        self._starts.append(self._starts[-1] + len(batch))
        return SpilledBatch(self, np.arange(*self._starts[-2:]))

    def whole(self) -> "SpilledBatch":
        """All programs of all parts."""
        return SpilledBatch(self, np.arange(self._starts[-1]))

    def read(self, programs: Ints) -> Batch:
        """Some programs of one part, numbered from the first of the first part."""
        part = int(self.part_of(programs).max(initial=0))
        self._file.seek(self._positions[part])
        arrays = [np.load(self._file, allow_pickle=False) for _ in fields(Batch)]
        return Batch(*arrays).take(programs - self._starts[part])

    def part_of(self, programs: Ints) -> Ints:
        """Which part each program lies in."""
        return np.searchsorted(self._starts, programs, side="right") - 1


@dataclass(frozen=True)
class SpilledBatch:
    """Programs on a shelf, int64 [n]; nothing is read before `loaded`."""

    shelf: Shelf
    programs: Ints

    def __len__(self) -> int:
        return len(self.programs)

    def take(self, index: Ints) -> "SpilledBatch":
        """The programs of `index` (integer positions), in that order."""
        return SpilledBatch(self.shelf, self.programs[index])

    def pieces(self) -> "Sequence[SpilledBatch]":
        """The same in pieces of one part each: few where the order is that of the shelf."""
        borders = np.flatnonzero(np.diff(self.shelf.part_of(self.programs))) + 1
        return [SpilledBatch(self.shelf, part) for part in np.split(self.programs, borders)]

    def loaded(self) -> Batch:
        """All of them in memory."""
        return joined([self.shelf.read(piece.programs) for piece in self.pieces()])
