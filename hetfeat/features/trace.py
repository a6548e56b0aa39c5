"""A trace as numbers: as a sequence of primitives, and as one vector.

Both read MetaSchedule's traces and those that importers make of other schedulers' steps: one
vocabulary, `columns.PRIMITIVES`. Sampling is resolved, so that a split has the factors that were
drawn; looking blocks and loops up is left out. Numbers are scaled as sign(x) log2(1 + |x|).
"""

import itertools
import math
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from hetfeat.errors import DataError
from hetfeat.features.batch import Floats
from hetfeat.features.columns import PARTS, PRIMITIVES, SCOPES, SPLITS, THREADS, TRACE

STEPS, WIDTH = 40, 22
"""The longest and the widest that TLP (Zhai et al., ASPLOS 2023) needs for almost every program."""
_POSTPROC = "EnterPostproc"
_LOOKUPS = {
    *("GetBlock", "GetSBlock", "GetLoops", "GetChildBlocks", "GetConsumers", "GetProducers"),
    *("GetOutputBlocks", "EnterPostproc"),
}
_TILES = {"SamplePerfectTile", "SamplePartitionedTile"}
_ON_LOOPS = {"Bind", "Parallel", "Vectorize", "Unroll"}
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
_UNITS, _LANES = _AT["units_extent"], _AT["lanes_extent"]

Step = tuple[str, str, list[float]]
"""Primitive, word among its attributes if there is one, numbers."""


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
    length, width = shape
    made = np.zeros((len(traces), length, width), np.float32)
    for program, trace in enumerate(traces):
        steps = itertools.islice(_steps(str(trace), until_postproc=True), length)
        for step, (kind, word, numbers) in enumerate(steps):
            made[program, step, 0] = _ID.get(kind, _OTHER) + 1
            made[program, step, 1] = _WORDS.get(word, 1) if word else 0
            made[program, step, 2 : 2 + len(numbers)] = numbers[: width - 2]
    made[:, :, 2:] = _scaled(made[:, :, 2:])
    return made


def vectors(traces: Collection[Any]) -> Floats:
    """Traces as vectors for models of trees, post-processing included.

    Args:
        traces: Traces as JSON, one a program: the column of a record store, or strings.

    Returns:
        Vectors, float32 [programs, len(columns.TRACE)].

    Raises:
        DataError: A trace is none.
    """
    return _vectors(_steps(str(trace), until_postproc=False) for trace in traces)


def vectors_of_steps(rows: Floats, offsets: npt.NDArray[np.int64]) -> Floats:
    """What `vectors` says of sequences made by `steps`: of traces without post-processing.

    Returns:
        Vectors, float32 [programs, len(columns.TRACE)].
    """
    return _vectors(_read(rows[a:b]) for a, b in itertools.pairwise(offsets))


def steps(
    traces: Collection[Any], padded_at_once: int = 1024
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """The sequences end to end, without padding, of `STEPS` steps at most.

    Args:
        traces: Traces as texts.
        padded_at_once: Sequences padded at a time, 3.5 kB each, most of it padding; 1024 by
            default.

    Returns:
        Steps, float32 [steps, WIDTH], and the first step of each program, int64 [programs + 1].

    Raises:
        DataError: A trace is none.
    """
    given, found, lengths = list(traces), [np.empty((0, WIDTH), np.float32)], [0]
    for start in range(0, len(given), padded_at_once):
        padded = sequences(given[start : start + padded_at_once])
        there = padded[:, :, 0] > 0
        found.append(padded[there])
        lengths += there.sum(axis=1).tolist()
    return np.concatenate(found), np.cumsum(lengths, dtype=np.int64)


def _read(rows: Floats) -> Iterator[Step]:
    """The steps of a sequence; numbers are whole, so that scaling loses nothing."""
    numbers = np.rint(np.sign(rows[:, 2:]) * (np.exp2(np.abs(rows[:, 2:], dtype=np.float64)) - 1))
    there = numbers != 0  # the rest is padding
    lengths = np.where(there.any(axis=1), numbers.shape[1] - there[:, ::-1].argmax(axis=1), 1)
    heads = rows[:, :2].astype(int).tolist()
    for (kind, word), values, length in zip(heads, numbers.tolist(), lengths, strict=True):
        yield _KIND[kind - 1], _WORD[word], values[:length]


def _vectors(programs: Iterable[Iterable[Step]]) -> Floats:
    made = [_vector(steps) for steps in programs]
    return _scaled(np.array(made, np.float64).reshape(-1, len(TRACE)))


def _vector(steps: Iterable[Step]) -> list[float]:
    row = [0.0] * len(TRACE)
    row[_PRODUCTS : _PRODUCTS + PARTS] = [1.0] * PARTS
    splits = 0
    for kind, word, numbers in steps:
        row[_ID.get(kind, _OTHER)] += 1
        if kind == "Split":
            for position, factor in enumerate(reversed(numbers[-PARTS:])):
                row[_PRODUCTS + position] *= max(factor, 1)
                if splits < SPLITS:
                    row[_FACTORS + splits * PARTS + position] = factor
            splits += 1
        elif kind in _ON_LOOPS:
            at = _EXTENT.get(word or kind)
            if at is not None:
                row[at] = max(row[at], numbers[0])
        elif kind == "Annotate" and numbers:
            if word in _UNROLL:
                row[_STEP] = max(row[_STEP], numbers[0])
            elif word == _JOBS:
                row[_PARALLEL_JOBS] = max(row[_PARALLEL_JOBS], numbers[0])
        elif word in _CACHE:
            row[_CACHE[word]] += 1
    row[_UNITS] = max(row[_EXTENT["Parallel"]], _product(row, "blockIdx."))
    row[_LANES] = max(row[_EXTENT["Vectorize"]], _product(row, "threadIdx."))
    return row


def _product(row: list[float], threads: str) -> float:
    """Product of the extents bound to the axes of blocks or threads; 0 where none is."""
    extents = [row[at] for name, at in _EXTENT.items() if name.startswith(threads) and row[at]]
    return math.prod(extents) if extents else 0.0


def _scaled(values: npt.NDArray[np.floating[Any]]) -> Floats:
    scaled: Floats = (np.sign(values) * np.log2(1 + np.abs(values))).astype(np.float32)
    return scaled


def _steps(trace: str, until_postproc: bool) -> Iterator[Step]:
    """The instructions that change the program, with what was sampled filled in.

    Raises:
        DataError: The trace is none.
    """
    try:
        instructions, decisions = orjson.loads(trace)
        chosen = dict(decisions)
        yield from _resolved(instructions, chosen, until_postproc)
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise DataError(
            f"trace {trace[:60]!r}", "[instructions, decisions] as JSON", "import it again"
        ) from error


def _resolved(
    instructions: list[Any], chosen: dict[int, Any], until_postproc: bool
) -> Iterator[Step]:
    values: dict[str, float] = {}  # what was sampled, and the extents of loops that are known
    for index, (kind, inputs, attributes, outputs) in enumerate(instructions):
        if kind == _POSTPROC and until_postproc:
            return
        if kind in _LOOKUPS:
            continue
        if kind in _TILES:
            values.update(zip(outputs, map(float, chosen.get(index, ())), strict=False))
        elif kind == "SampleCategorical":
            if index in chosen:
                values[outputs[0]] = float(attributes[0][chosen[index]])
        elif kind == "Split":
            factors = [_number(value, values) for value in inputs[1:]]
            extent = values.get(inputs[0], 0.0)
            if extent and 0 in factors:
                known = math.prod(factor for factor in factors if factor)
                factors[factors.index(0)] = -(-extent // known)
            values.update(zip(outputs, factors, strict=False))
            yield kind, "", factors
        elif kind == "Fuse":
            extent = math.prod(values.get(loop, 0.0) for loop in inputs)
            values[outputs[0]] = extent
            yield kind, "", [float(len(inputs)), extent]
        elif kind == "Reorder":
            places = {loop: place for place, loop in enumerate(sorted(inputs, key=_order))}
            yield kind, "", [float(places[loop]) for loop in inputs]
        elif kind in _ON_LOOPS:
            yield kind, _word(attributes[:1]), [values.get(inputs[0], 0.0)]
        elif kind == "SampleComputeLocation":
            yield kind, "", [float(chosen.get(index, -1))]
        else:
            about = inputs[1:] if kind == "Annotate" else inputs  # whatever it is put on
            yield (
                kind,
                _word(attributes),
                [_number(x, values) for x in (*about, *attributes) if _counts(x)],
            )


def _word(attributes: list[Any]) -> str:
    """The first text; empty where there is none."""
    return next((word for word in attributes if type(word) is str), "")


def _number(value: Any, values: dict[str, float]) -> float:
    """A number or what a variable stands for; 0 where that is not known."""
    return values.get(value, 0.0) if type(value) is str else float(value)


def _counts(value: Any) -> bool:
    """Whether it is a number, a loop or what was sampled, and not a block or a word."""
    return type(value) in (int, float) or (
        type(value) is str and value[:1] in ("l", "v") and value[1:].isdecimal()
    )


def _order(loop: str) -> int:
    return int(loop[1:])
