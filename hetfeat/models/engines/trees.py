"""What both kinds of boosted trees share: the rows they read, and the objective over them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from hetfeat.features.batch import Features, Floats
from hetfeat.models.aggregate import table_names, table_of
from hetfeat.models.objective import Objective

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """The rows of programs; those of a single part are in memory, those of several are read.

    Attributes:
        parts: Functions that give the rows of a part each, float32 [rows of the part, columns].
        sizes: Number of rows of each part.
        program: Position of the program that each row is of, int64 [r].
        programs: Number of programs.
        empty: Columns that no row has a value in, bool [columns].
        has_gaps: Whether some rows lack a value that others have.
    """

    parts: Sequence[Callable[[], Floats]]
    sizes: Sequence[int]
    program: npt.NDArray[np.int64]
    programs: int
    empty: npt.NDArray[np.bool_]
    has_gaps: bool

    @property
    def in_memory(self) -> bool:
        """Whether all rows are."""
        return len(self.parts) == 1

    def whole(self) -> Floats:
        """All rows, float32 [r, columns]."""
        read = [part() for part in self.parts]
        return read[0] if self.in_memory else np.concatenate(read)

    def sums(self, values: npt.NDArray[np.floating]) -> Doubles:
        """Sum over the rows of each program, float64 [programs]."""
        return np.bincount(self.program, values, self.programs).astype(np.float64)


def rows_of(batch: Features, kind: str) -> Rows:
    """The programs as the rows of one of `aggregate.TABLES`."""
    pieces = batch.pieces()
    parts: list[Callable[[], Floats]] = []
    sizes, programs, start = [], [], 0
    lacked_by_all = np.ones(len(table_names(kind)), bool)
    lacked_by_some = ~lacked_by_all
    for piece in pieces:
        table = table_of(piece.loaded(), kind)
        lacks = np.isnan(table.rows)
        lacked_by_all &= lacks.all(0)
        lacked_by_some |= lacks.any(0)
        again = partial(_read, piece, kind) if len(pieces) > 1 else partial(_same, table.rows)
        parts.append(again)
        sizes.append(len(table.rows))
        programs.append(table.program + start)
        start += table.programs
    has_gaps = bool((lacked_by_some & ~lacked_by_all).any())
    return Rows(parts, sizes, np.concatenate(programs), start, lacked_by_all, has_gaps)


def most_important(gains: Mapping[str, float], kind: str, count: int) -> Floats:
    """1 for the columns of a table with the greatest gains, 0 for the others; all 1 for count 0."""
    names = table_names(kind)
    best = set(sorted(names, key=lambda name: -gains.get(name, 0.0))[: count or len(names)])
    return np.array([name in best for name in names], np.float32)


def _read(piece: Features, kind: str) -> Floats:
    return table_of(piece.loaded(), kind).rows


def _same(rows: Floats) -> Floats:
    return rows


@dataclass(frozen=True)
class RowObjective:
    """An objective over programs, passed on to the rows whose sum a program is.

    Every row of a program has the program's slope. Trees that move all n rows of a program alike
    move its margin n times as far, hence n times the program's curvature.
    """

    objective: Objective
    rows: Rows

    def gradient(self, row_margins: npt.NDArray[np.floating]) -> tuple[Doubles, Doubles]:
        """First and second derivatives by the margin of each row, both float64 [r]."""
        slope, bend = self.objective.gradient(self.rows.sums(row_margins))
        program = self.rows.program
        counts = np.bincount(program, minlength=self.rows.programs)
        return slope[program], (bend * counts)[program]
