"""A trace as numbers: as a sequence of primitives, and as one vector.

Both read MetaSchedule's traces and those that importers make of other schedulers' steps: one
vocabulary, `columns.PRIMITIVES`. Sampling is resolved, so that a split has the factors that were
drawn; looking blocks and loops up is left out. Numbers are scaled as sign(x) log2(1 + |x|).
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import orjson

from hetfeat.errors import DataError
from hetfeat.features.batch import Floats, Ints
from hetfeat.features.columns import PARTS, PRIMITIVES, SCOPES, SPLITS, THREADS, TRACE
from hetfeat.features.trace_groups import TraceGroup, grouped
from hetfeat.features.trace_steps import ON_LOOPS, Reading, Step, ValuesOfOne

STEPS, WIDTH = 40, 22
"""The longest and the widest that TLP (Zhai et al., ASPLOS 2023) needs for almost every program."""
_UNROLL = {
    *("pragma_auto_unroll_max_step", "meta_schedule.unroll_explicit"),
    "meta_schedule.unroll_implicit",
}
_JOBS = "meta_schedule.parallel"
_WORDS = {
    word: number for number, word in enumerate((*THREADS, *SCOPES, *sorted(_UNROLL), _JOBS), 2)
}
"""Words among an instruction's attributes; 0 is none, 1 any other."""
KINDS, WORDS = len(PRIMITIVES) + 2, len(_WORDS) + 2
"""How many numbers the first two columns of a step can have."""
_ID = {name: number for number, name in enumerate(PRIMITIVES)}
_OTHER = len(PRIMITIVES)
_KIND, _WORD = (*PRIMITIVES, "other"), ("", "other", *_WORDS)
_AT = {column.name: number for number, column in enumerate(TRACE)}
_FACTORS, _PRODUCTS = _AT["split0_factor0"], _AT["factor0_product"]
_EXTENT = {
    **{name: _AT[f"bind_{name}_extent"] for name in THREADS},
    **{name: _AT[f"{name.lower()}_extent"] for name in ("Parallel", "Vectorize", "Unroll")},
}
_CACHE = {scope: _AT[f"cache_{scope}"] for scope in SCOPES}
_STEP, _PARALLEL_JOBS = _AT["unroll_max_step"], _AT["parallel_jobs"]
_JOBS_OF = {_JOBS: _PARALLEL_JOBS}
_UNITS, _LANES = _AT["units_extent"], _AT["lanes_extent"]
_EMPTY = np.zeros(len(TRACE))
_EMPTY[_PRODUCTS : _PRODUCTS + PARTS] = 1
_NO_TRACE = (ValueError, TypeError, IndexError, KeyError)
"""What reading something else than a trace raises."""


def sequences(traces: Collection[Any], shape: tuple[int, int] = (STEPS, WIDTH)) -> Floats:
    """Traces as sequences of primitives, up to where post-processing starts.

    A step is the primitive's number (1 + its place in `columns.PRIMITIVES`, 0 for padding), the
    number of its word, and its numbers, cut or padded with 0.

    Args:
        traces: Traces as JSON, one a program: the column of a record store, or strings.
        shape: Steps and width of a sequence; `(STEPS, WIDTH)` by default.

    Returns:
        Sequences, float32 [programs, steps, width].

    Raises:
        DataError: A trace is none.
    """
    rows, offsets, _ = _read_all(traces, shape)
    lengths = np.diff(offsets)
    padded = np.zeros((len(lengths), *shape), np.float32)
    padded[np.arange(shape[0]) < lengths[:, None]] = _scaled_steps(rows)
    return padded


def vectors(traces: Collection[Any]) -> Floats:
    """Traces as vectors for models of trees, post-processing included.

    Args:
        traces: Traces as JSON, one a program: the column of a record store, or strings.

    Returns:
        Vectors, float32 [programs, len(columns.TRACE)].

    Raises:
        DataError: A trace is none.
    """
    return _finished(_read_all(traces)[2])


def vectors_of_steps(rows: Floats, offsets: Ints, at_once: int = 4096) -> Floats:
    """What `vectors` says of sequences made by `steps`: of traces without post-processing.

    Args:
        rows: Steps of all programs, float32 [steps, WIDTH].
        offsets: First step of each program and the end of the last, int64 [programs + 1].
        at_once: Programs read at a time; 4096 by default.

    Returns:
        Vectors, float32 [programs, len(columns.TRACE)].
    """
    vectors = np.tile(_EMPTY, (len(offsets) - 1, 1))
    for start in range(0, len(vectors), at_once):
        own = offsets[start : start + at_once + 1]
        _read_steps(rows[own[0] : own[-1]], own - own[0], vectors[start : start + at_once])
    return _finished(vectors)


def steps(traces: Collection[Any], at_once: int = 8192) -> tuple[Floats, Ints]:
    """The sequences end to end, without padding, of `STEPS` steps at most.

    Args:
        traces: Traces as texts.
        at_once: Traces read at a time; 8192 by default.

    Returns:
        Steps, float32 [steps, WIDTH], and the first step of each program, int64 [programs + 1].

    Raises:
        DataError: A trace is none.
    """
    return steps_and_vectors(traces, at_once)[:2]


def steps_and_vectors(traces: Collection[Any], at_once: int = 8192) -> tuple[Floats, Ints, Floats]:
    """What `steps` and `vectors` say, for which each trace is read once.

    Args:
        traces: Traces as texts.
        at_once: Traces read at a time; 8192 by default.

    Raises:
        DataError: A trace is none.
    """
    given = list(traces)
    found, lengths = [np.empty((0, WIDTH), np.float32)], [np.zeros(1, np.int64)]
    vectors = [np.empty((0, len(TRACE)), np.float32)]
    for start in range(0, len(given), at_once):
        rows, offsets, unscaled = _read_all(given[start : start + at_once])
        found.append(_scaled_steps(rows))
        lengths.append(np.diff(offsets))
        vectors.append(_finished(unscaled))
    return np.concatenate(found), np.cumsum(np.concatenate(lengths)), np.concatenate(vectors)


def _read_all(
    traces: Collection[Any], shape: tuple[int, int] = (STEPS, WIDTH)
) -> tuple[Floats, Ints, npt.NDArray[np.float64]]:
    """Steps end to end, the first of each program, and vectors, before anything is scaled."""
    given = [str(trace) for trace in traces]
    vectors = np.tile(_EMPTY, (len(given), 1))
    read: list[tuple[Ints, Floats]] = []
    groups, alone = grouped(given)
    for group in groups:
        try:
            read.append((group.rows, _read_group(group, vectors, shape)))
        except _NO_TRACE:
            alone += group.rows.tolist()
    for position in sorted(alone):
        read.append((np.array([position]), _read_one(given[position], vectors[position], shape)))
    lengths = np.zeros(len(given), np.int64)
    for rows, made in read:
        lengths[rows] = made.shape[1]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    found = np.empty((offsets[-1], shape[1]), np.float32)
    for rows, made in read:
        found[offsets[rows, None] + np.arange(made.shape[1])] = made
    return found, offsets, vectors


def _read_one(trace: str, vector: npt.NDArray[np.float64], shape: tuple[int, int]) -> Floats:
    """Writes the vector of a trace; its steps, float32 [1, steps, width]."""
    row = _VectorRow(_EMPTY.tolist())
    read = Reading(*_parsed(trace))
    made = np.zeros((1, *shape), np.float32)
    length = _add_steps(row, _checked(read.before(), trace), made[0])
    row.add_all(_checked(read.after(), trace))
    vector[:] = row.values
    return made[:, :length]


def _read_group(
    group: TraceGroup, vectors: npt.NDArray[np.float64], shape: tuple[int, int]
) -> Floats:
    """Writes the vectors of a group; their steps, float32 [n, steps, width]."""
    n = len(group.rows)
    read = Reading(group.instructions, group.chosen)
    row = _VectorRow.of_group(n)
    made = np.zeros((min(shape[0], len(group.instructions)), shape[1], n), np.float32)
    length = _add_steps(row, read.before(), made)
    values = vectors[group.rows] = row.table(n)
    for position, (place, rest) in enumerate(zip(group.rows.tolist(), group.rest, strict=True)):
        if rest:
            own = _VectorRow(values[position].tolist(), splits=row.splits)
            known = ValuesOfOne(read.values, position)
            own.add_all(Reading(orjson.loads(rest), {}, known).after())
            vectors[place] = own.values
    return made[:length].transpose(2, 0, 1)


def _add_steps(row: "_VectorRow", steps: Iterable[Step], made: Floats) -> int:
    """Adds all steps to a vector, and writes as many as there is place for: their number."""
    count = 0
    for count, one in enumerate(steps, 1):
        row.add(*one)
        if count <= len(made):
            _write_step(made[count - 1], *one)
    return min(count, len(made))


def _write_step(made: Any, kind: str, word: str, numbers: Sequence[Any]) -> None:
    made[0] = _ID.get(kind, _OTHER) + 1
    made[1] = _WORDS.get(word, 1) if word else 0
    for column, number in enumerate(numbers[: len(made) - 2], 2):
        made[column] = number


def _scaled_steps(rows: Floats) -> Floats:
    rows[:, 2:] = _scaled(rows[:, 2:])
    return rows


def _read_steps(
    rows: Floats, offsets: Ints, vectors: npt.NDArray[np.float64], least: int = 4
) -> None:
    """Writes vectors, of `least` programs that take the same steps at once."""
    # They are whole, so that scaling lost nothing.
    numbers = np.rint(np.sign(rows[:, 2:]) * (np.exp2(np.abs(rows[:, 2:], dtype=np.float64)) - 1))
    there = numbers != 0  # the rest is padding
    counts = np.where(there.any(axis=1), numbers.shape[1] - there[:, ::-1].argmax(axis=1), 1)
    heads = np.column_stack([rows[:, :2], counts]).astype(np.int16)
    alike: defaultdict[bytes, list[int]] = defaultdict(list)
    for program, (start, end) in enumerate(itertools.pairwise(offsets.tolist())):
        alike[heads[start:end].tobytes()].append(program)
    for head, programs in alike.items():
        kinds = [
            (_KIND[k - 1], _WORD[w], n) for k, w, n in np.frombuffer(head, np.int16).reshape(-1, 3)
        ]
        taken = numbers[offsets[programs, None] + np.arange(len(kinds))]
        if len(programs) >= least:
            row = _VectorRow.of_group(len(programs))
            row.add_all(
                (kind, word, [*taken[:, at, :n].T]) for at, (kind, word, n) in enumerate(kinds)
            )
            vectors[programs] = row.table(len(programs))
        else:
            for program, own in zip(programs, taken.tolist(), strict=True):
                row = _VectorRow(_EMPTY.tolist())
                row.add_all(
                    (kind, word, of[:n]) for (kind, word, n), of in zip(kinds, own, strict=True)
                )
                vectors[program] = row.values


class _VectorRow:
    """A vector that steps are added to; each of its values is a number, or one of each program."""

    def __init__(
        self, values: list[Any], maximum: Callable[[Any, Any], Any] = max, splits: int = 0
    ) -> None:
        self.values, self.maximum, self.splits = values, maximum, splits

    @classmethod
    def of_group(cls, programs: int) -> Self:
        """An empty one of each program."""
        return cls(list(np.repeat(_EMPTY[:, None], programs, axis=1)), np.maximum)

    def table(self, programs: int) -> npt.NDArray[np.float64]:
        """The vectors of a group, float64 [programs, columns]."""
        table = np.empty((programs, len(self.values)))
        for column, value in enumerate(self.values):
            table[:, column] = value
        return table

    def add_all(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self.add(*step)

    def add(self, kind: str, word: str, numbers: Sequence[Any]) -> None:
        values = self.values
        values[_ID.get(kind, _OTHER)] += 1
        if kind == "Split":
            for position, factor in enumerate(reversed(numbers[-PARTS:])):
                values[_PRODUCTS + position] *= self.maximum(factor, 1)
                if self.splits < SPLITS:
                    values[_FACTORS + self.splits * PARTS + position] = factor
            self.splits += 1
        elif kind in ON_LOOPS:
            self._raise(_EXTENT.get(word or kind), numbers)
        elif kind == "Annotate" and numbers:
            self._raise(_STEP if word in _UNROLL else _JOBS_OF.get(word), numbers)
        elif word in _CACHE:
            values[_CACHE[word]] += 1

    def _raise(self, at: int | None, numbers: Sequence[Any]) -> None:
        if at is not None:
            self.values[at] = self.maximum(self.values[at], numbers[0])


def _finished(rows: npt.NDArray[np.float64]) -> Floats:
    """Vectors once everything is added."""
    for at, own, threads in (
        (_UNITS, "Parallel", "blockIdx."),
        (_LANES, "Vectorize", "threadIdx."),
    ):
        bound = rows[:, [i for name, i in _EXTENT.items() if name.startswith(threads)]]
        product = np.where(bound != 0, bound, 1).prod(axis=1) * (bound != 0).any(axis=1)
        rows[:, at] = np.maximum(rows[:, _EXTENT[own]], product)
    return _scaled(rows)


def _scaled(values: npt.NDArray[np.floating[Any]]) -> Floats:
    scaled = np.abs(values)
    scaled += 1
    np.log2(scaled, out=scaled)
    np.copysign(scaled, values, out=scaled)
    narrow: Floats = scaled.astype(np.float32, copy=False)
    return narrow


def _parsed(trace: str) -> tuple[list[Any], dict[int, Any]]:
    try:
        instructions, decisions = orjson.loads(trace)
        return instructions, dict(decisions)
    except _NO_TRACE as error:
        raise _no_trace(trace) from error


def _checked(steps: Iterator[Step], trace: str) -> Iterator[Step]:
    try:
        yield from steps
    except _NO_TRACE as error:
        raise _no_trace(trace) from error


def _no_trace(trace: str) -> DataError:
    return DataError(
        f"trace {trace[:60]!r}", "[instructions, decisions] as JSON", "import it again"
    )
