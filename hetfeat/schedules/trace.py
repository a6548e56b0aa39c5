"""Traces as plain JSON, `[instructions, decisions]`, varied without TVM.

An instruction is `[kind, inputs, attributes, outputs]`, a decision `[instruction index, value]`.
Working on the JSON costs microseconds; applying a trace costs milliseconds.
"""

import copy
import json
import math
import random
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from hetfeat.parsing import Count, Json, PositiveInt, decode, parse, printable

Trace = list[Any]

POSTPROC = "EnterPostproc"
TILE, CATEGORICAL = "SamplePerfectTile", "SampleCategorical"
LOCATION = "SampleComputeLocation"


_Instruction = tuple[str, list[Json], list[Json], list[Json]]
_Recorded = tuple[list[_Instruction], list[tuple[Count, Json]]]
_FACTORS = Annotated[list[PositiveInt], Field(min_length=1)]


def _of_its_instructions(found: _Recorded) -> _Recorded:
    instructions, decisions = found
    if len({index for index, _ in decisions}) < len(decisions):
        raise ValueError("two decisions of an instruction")
    for index, value in decisions:
        if index >= len(instructions):
            raise ValueError("a decision of an instruction that is not there")
        if instructions[index][0] == TILE:
            parse(value, _FACTORS, what="factors", action=_ACTION)
    return found


_RECORDED = Annotated[_Recorded, AfterValidator(_of_its_instructions)]
_ACTION = "leave the record out"


def parse_trace(text: str) -> Trace:
    """The trace of a record, which others can write.

    Raises:
        DataError: It is none.
    """
    decode(text, _RECORDED, what=f"trace {printable(text, 60)!r}", action=_ACTION)
    trace: Trace = json.loads(text)
    return trace


def dump(trace: Any) -> str:
    """The trace as compact JSON, the form that records keep; TVM's boxed numbers are unboxed."""
    return json.dumps(trace, separators=(",", ":"), default=lambda boxed: boxed.value)


def without_postproc(trace: Trace) -> Trace:
    """The trace up to where post-processing starts: the part that decisions govern."""
    instructions, decisions = trace
    kinds = [instruction[0] for instruction in instructions]
    if POSTPROC not in kinds:
        return trace
    end = kinds.index(POSTPROC)
    return [instructions[:end], [d for d in decisions if d[0] < end]]


def is_custom_sketch(text: str) -> bool:
    """Whether a program, by its trace as text, is of a custom sketch.

    Those make their loops parallel themselves; for MetaSchedule's, post-processing does.
    """
    return '"Parallel"' in text.partition(f'"{POSTPROC}"')[0]


def innermost_limit(attributes: list[Any]) -> int | None:
    """Largest innermost factor that a `SamplePerfectTile` of these attributes allows, if any is."""
    return attributes[1] if attributes[1] > 0 else None


def vary(trace: Trace, rng: random.Random) -> Trace | None:
    """A copy with one decision changed, or None if the trace has none to change.

    Tile factors move one prime from a loop level to another, so their product stays the extent;
    a categorical decision takes another value; a compute location is left to be sampled anew.
    """
    instructions, decisions = without_postproc(trace)
    order = list(range(len(decisions)))
    rng.shuffle(order)
    for position in order:
        index, value = decisions[position]
        kind, _, attributes, _ = instructions[index]
        changed: list[Any] | None = None
        if kind == TILE:
            factors = move_prime(value, attributes[1], rng)
            changed = factors and [[index, factors]]
        elif kind == CATEGORICAL:
            others = [i for i in range(len(attributes[0])) if i != value]
            changed = [[index, rng.choice(others)]] if others else None
        elif kind == LOCATION:
            changed = []
        if changed is not None:
            kept = copy.copy(decisions)
            kept[position : position + 1] = changed
            return [instructions, kept]
    return None


def cross_over(one: Trace, other: Trace, rng: random.Random) -> Trace:
    """A trace with the decisions of either, each drawn; `one` where their instructions differ."""
    if one[0] != other[0]:
        return one
    theirs = dict(other[1])
    return [one[0], [[i, rng.choice((value, theirs.get(i, value)))] for i, value in one[1]]]


def drawn_anew(trace: Trace, rng: random.Random) -> Trace:
    """The trace with every decision drawn anew, compute locations left to be sampled."""
    instructions, decisions = without_postproc(trace)
    drawn: list[list[Any]] = []
    for index, value in decisions:
        kind, _, attributes, _ = instructions[index]
        if kind == TILE:
            drawn.append([index, _random_factors(math.prod(value), attributes, rng)])
        elif kind == CATEGORICAL:
            drawn.append([index, rng.randrange(len(attributes[0]))])
    return [instructions, drawn]


def _random_factors(extent: int, attributes: list[Any], rng: random.Random) -> list[int]:
    """Factors of an extent, each prime at a level drawn among those that it does not overfill."""
    levels, max_innermost = attributes
    factors = [1] * levels
    left = extent
    for prime in primes(extent):
        while left % prime == 0:
            left //= prime
            level = rng.randrange(levels)
            if level == levels - 1 and factors[level] * prime > max_innermost > 0:
                level = rng.randrange(levels - 1) if levels > 1 else level
            factors[level] *= prime
    return factors


def move_prime(factors: list[int], max_innermost: int, rng: random.Random) -> list[int] | None:
    """Tile factors with one prime moved between two levels; None where nothing can move."""
    moves = [
        (source, goal, prime)
        for source, factor in enumerate(factors)
        for prime in primes(factor)
        for goal in range(len(factors))
        if goal != source
        and not (goal == len(factors) - 1 and factors[goal] * prime > max_innermost > 0)
    ]
    if not moves:
        return None
    source, goal, prime = rng.choice(moves)
    moved = list(factors)
    moved[source] //= prime
    moved[goal] *= prime
    return moved


def primes(number: int) -> list[int]:
    """Distinct prime factors, ascending; none of 1."""
    found, divisor = [], 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            found.append(divisor)
            while number % divisor == 0:
                number //= divisor
        divisor += 1
    return [*found, number] if number > 1 else found
