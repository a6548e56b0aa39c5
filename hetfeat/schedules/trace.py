"""Traces as plain JSON, `[instructions, decisions]`, varied without TVM.

An instruction is `[kind, inputs, attributes, outputs]`, a decision `[instruction index, value]`.
Working on the JSON costs microseconds; applying a trace costs milliseconds.
"""

import copy
import json
import random
from typing import Any

Trace = list[Any]

POSTPROC = "EnterPostproc"


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
        if kind == "SamplePerfectTile":
            factors = move_prime(value, attributes[1], rng)
            changed = factors and [[index, factors]]
        elif kind == "SampleCategorical":
            others = [i for i in range(len(attributes[0])) if i != value]
            changed = [[index, rng.choice(others)]] if others else None
        elif kind == "SampleComputeLocation":
            changed = []
        if changed is not None:
            kept = copy.copy(decisions)
            kept[position : position + 1] = changed
            return [instructions, kept]
    return None


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
