"""Programs as tables, for models that read rows: `flat`, a row a program, or `sum`, a row a store.

The flat row holds two folds of the stores, chosen by measurement (docs/models.md): the store that
computes most, as it is; the sum of all, taken of the quantities and not of their logarithms. Beside
each store or fold stands its relation to task and device, at the end trace, task and hardware.
With `sum` the margin of a program is the sum over its stores of what the trees say of each
("pack-sum" in TVM).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetfeat.errors import RequestError
from hetfeat.features.batch import Batch, Floats, Ints
from hetfeat.features.columns import HARDWARE, RELATIVE, STORE, TASK, TRACE
from hetfeat.models.relative import Doubles, relative_features

TABLES = ("flat", "sum")
FOLDS = ("main", "total")
_NAMES = [column.name for column in STORE]
_FLOAT_MATH = slice(_NAMES.index("float_mad"), _NAMES.index("float_other") + 1)
_OUTER_PRODUCT = _NAMES.index("outer_product")


@dataclass(frozen=True)
class FeatureTable:
    """Rows that a program's margin is the sum over.

    Attributes:
        rows: Feature rows of all programs, float32 [r, columns].
        program: Position of the program that each row is of, int64 [r].
        programs: Number of programs.
    """

    rows: Floats
    program: Ints
    programs: int

    def sums(self, values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """Sum over the rows of each program, float64 [programs]."""
        return np.bincount(self.program, values, self.programs).astype(np.float64)


def table_of(batch: Batch, kind: str) -> FeatureTable:
    """The programs of a batch as one of `TABLES`.

    Raises:
        RequestError: No such table.
    """
    if kind == "flat":
        return FeatureTable(flat_features(batch), np.arange(len(batch)), len(batch))
    if kind != "sum":
        raise RequestError(f"stores {kind!r}", f"one of {', '.join(TABLES)}", "choose one of them")
    counts = np.diff(batch.offsets)
    own = np.maximum(counts, 1)  # a program that only its trace tells of has one, too
    program = np.repeat(np.arange(len(batch)), own)
    stores = np.zeros((len(program), len(STORE)), np.float32)
    stores[np.repeat(counts > 0, own)] = batch.stores
    rows = [_related(stores, batch, program), _context(batch)[program]]
    return FeatureTable(np.concatenate(rows, axis=1), program, len(batch))


def table_names(kind: str) -> list[str]:
    """Names of the columns of a table, in order."""
    folds = FOLDS if kind == "flat" else ("store",)
    return [
        *(f"{fold}.{column.name}" for fold in folds for column in (*STORE, *RELATIVE)),
        *(f"trace.{column.name}" for column in TRACE),
        *(f"task.{column.name}" for column in TASK),
        *(f"hardware.{column.name}" for column in HARDWARE),
    ]


def hardware_columns(kind: str) -> range:
    """Where in a table the columns of `HARDWARE` stand, in order."""
    width = len(table_names(kind))
    return range(width - len(HARDWARE), width)


def flat_features(batch: Batch) -> Floats:
    """The programs of a batch as rows, float32 [n, len(table_names("flat"))].

    A program without stores has zeros.
    """
    own = np.arange(len(batch))
    folds = [_related(fold, batch, own) for fold in _folds(batch)]
    return np.concatenate([*folds, _context(batch)], axis=1)


def _related(stores: Floats, batch: Batch, program: Ints) -> Floats:
    """Stores of the programs given, with their relation to task and device beside them."""
    relative = relative_features(stores, batch.task[program], batch.hardware[program])
    return np.concatenate([stores, relative], axis=1)


def _context(batch: Batch) -> Floats:
    return np.concatenate([batch.trace, batch.task, batch.hardware], axis=1)


def _folds(batch: Batch, at_once: int = 1024) -> tuple[Floats, Floats]:
    """Each program's main store and the sum over its stores, both float32 [n, 164].

    So many programs at a time stay in a core's cache.
    """
    main, total = (np.zeros((len(batch), len(STORE)), np.float32) for _ in FOLDS)
    for start in range(0, len(batch), at_once):
        offsets = batch.offsets[start : start + at_once + 1]
        of_some = start + np.flatnonzero(np.diff(offsets))
        stores = batch.stores[offsets[0] : offsets[-1]]
        if len(stores):
            main[of_some], total[of_some] = _folded(stores, offsets - offsets[0])
    return main, total


def _folded(stores: Floats, offsets: Ints) -> tuple[Floats, Doubles]:
    """Main store and sum of the programs that have stores, both [n, 164]."""
    # Signed log2(1 + |x|) undone, summed and done again; float64 holds any product of loops.
    quantity = np.abs(stores, dtype=np.float64)
    np.exp2(quantity, out=quantity)
    quantity -= 1
    np.copysign(quantity, stores, out=quantity)
    counts = np.diff(offsets)
    sums = sums_of_runs(quantity, offsets[:-1][counts > 0], counts[counts > 0])
    total = np.sign(sums) * np.log2(1 + np.abs(sums))
    return stores[_main_stores(stores, offsets, quantity)], total


def sums_of_runs(rows: Doubles, starts: Ints, counts: Ints) -> Doubles:
    """Sums of consecutive rows: `np.add.reduceat`, in a sixth of its time for a few rows each."""
    sums = rows[starts]
    for number in range(1, int(counts.max())):
        more = np.flatnonzero(counts > number)
        sums[more] += rows[starts[more] + number]
    return sums


def _main_stores(stores: Floats, offsets: Ints, quantity: Doubles) -> Ints:
    """Row of the store with the most float operations and loops, of each program with stores."""
    math = np.log2(1 + quantity[:, _FLOAT_MATH].sum(axis=1))
    work = math + stores[:, _OUTER_PRODUCT]
    program = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((work, program))
    ends = offsets[1:][np.diff(offsets) > 0] - 1
    return order[ends]
