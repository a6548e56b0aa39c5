"""Tile spaces: how the loops of a computation are split.

State, moves and start are those of Zhang et al. 2019 (arXiv 1909.10616), for extents that need not
be powers of two.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
import numpy.typing as npt

from hetfeat.errors import RequestError
from hetfeat.schedules.trace import primes
from hetfeat.search.base import State

GEMM_SLOTS = (4, 2, 4)
"""Loop levels of m, k and n, as in TVM's tiling SSRSRS for CPUs."""


@dataclass(frozen=True)
class Dimension:
    """A loop to be split.

    Attributes:
        extent: Number of its iterations, the product of its factors.
        slots: Number of levels it is split into.
        max_innermost: Largest last factor; None, the default, for any.
    """

    extent: int
    slots: int
    max_innermost: int | None = None

    def __post_init__(self) -> None:
        if self.extent < 1 or self.slots < 1:
            raise RequestError(
                f"a dimension of extent {self.extent} in {self.slots} slots",
                "whole numbers of at least 1",
                "correct the shape",
            )

    def is_legal(self, factors: State) -> bool:
        """Whether these factors, whose product is the extent, may stand."""
        return self.max_innermost is None or factors[-1] <= self.max_innermost


class TileSpace:
    """All ways to write each dimension's extent as a product of its slots' factors.

    A state is the factors of all dimensions, one dimension after another. A move takes one prime
    factor from one slot of a dimension to another. An exchange takes one there and another back.
    """

    def __init__(self, dimensions: Sequence[Dimension]) -> None:
        self.dimensions = tuple(dimensions)
        self._starts = [0]
        for dimension in self.dimensions:
            self._starts.append(self._starts[-1] + dimension.slots)
        self._factorings = [
            [f for f in factorings(d.extent, d.slots) if d.is_legal(f)] for d in self.dimensions
        ]
        self._following = [_following(factors) for factors in self._factorings]
        self._moves = [
            (at, start + source, start + goal, prime)
            for at, (d, start) in enumerate(zip(self.dimensions, self._starts, strict=False))
            for source, goal in permutations(range(d.slots), 2)
            for prime in primes(d.extent)
        ]
        self._exchanges = [
            (at, start + source, start + goal, there, back)
            for at, (d, start) in enumerate(zip(self.dimensions, self._starts, strict=False))
            for source, goal in permutations(range(d.slots), 2)
            for there, back in exchanged_factors(d.extent)
        ]
        self.size = math.prod(map(len, self._factorings))
        if self.size == 0:
            raise RequestError(
                "a tile space without a state",
                "a largest innermost factor of at least 1",
                "allow larger innermost factors",
            )
        self.actions = len(self._moves)
        self.levels = tuple(
            tuple(sorted({factors[slot] for factors in of_dimension}))
            for d, of_dimension in zip(self.dimensions, self._factorings, strict=True)
            for slot in range(d.slots)
        )
        scale = [math.log2(max(d.extent, 2)) for d in self.dimensions for _ in range(d.slots)]
        self._scale = np.array(scale, np.float32)

    def state_at(self, index: int) -> State:
        """See `Space.state_at`."""
        state: State = ()
        for factors in self._factorings:
            index, at = divmod(index, len(factors))
            state += factors[at]
        return state

    def __contains__(self, state: State) -> bool:
        parts = zip(self.dimensions, self._starts, self._starts[1:], strict=False)
        return all(dimension.is_legal(state[begin:end]) for dimension, begin, end in parts)

    def start(self) -> State | None:
        """Everything in the outermost loops, or None where that is not legal."""
        untiled = [(d.extent, *[1] * (d.slots - 1)) for d in self.dimensions]
        legal = all(d.is_legal(f) for d, f in zip(self.dimensions, untiled, strict=True))
        return sum(untiled, ()) if legal else None

    def moves(self, state: State) -> list[tuple[int, State]]:
        """See `Space.moves`."""
        moves = []
        for action, (at, source, goal, prime) in enumerate(self._moves):
            if state[source] % prime == 0:
                moved = list(state)
                moved[source] //= prime
                moved[goal] *= prime
                if self._is_legal(at, moved):
                    moves.append((action, tuple(moved)))
        return moves

    def exchanges(self, state: State) -> list[State]:
        """See `Space.exchanges`; there are none where an extent has one prime factor."""
        found = []
        for at, source, goal, there, back in self._exchanges:
            if state[source] % there == 0 and state[goal] % back == 0:
                moved = list(state)
                moved[source] = moved[source] // there * back
                moved[goal] = moved[goal] // back * there
                if self._is_legal(at, moved):
                    found.append(tuple(moved))
        return found

    def _is_legal(self, at: int, state: Sequence[int]) -> bool:
        """Whether the factors that a state has of one dimension may stand."""
        return self.dimensions[at].is_legal(tuple(state[self._starts[at] : self._starts[at + 1]]))

    def options(self, prefix: State) -> Sequence[int]:
        """See `Space.options`."""
        at = next(i for i, start in enumerate(self._starts[1:]) if len(prefix) < start)
        return self._following[at][prefix[self._starts[at] :]]

    def vectors(self, states: Sequence[State]) -> npt.NDArray[np.float32]:
        """Logarithms of the factors over that of the extent."""
        factors = np.array(states, np.float32).reshape(-1, len(self.levels))
        return (np.log2(factors) / self._scale).astype(np.float32)


def gemm_space(m: int, n: int, k: int, slots: tuple[int, int, int] = GEMM_SLOTS) -> TileSpace:
    """The tile space of C[m, n] = A[m, k] B[k, n]; states are factors of m, then k, then n."""
    return TileSpace([Dimension(e, s) for e, s in zip((m, k, n), slots, strict=True)])


def factorings(extent: int, slots: int) -> list[State]:
    """Every way to write `extent` as an ordered product of `slots` factors, ascending."""
    if slots == 1:
        return [(extent,)]
    small = [d for d in range(1, math.isqrt(extent) + 1) if extent % d == 0]
    divisors = {*small, *(extent // d for d in small)}
    return [(d, *rest) for d in sorted(divisors) for rest in factorings(extent // d, slots - 1)]


def exchanged_factors(extent: int) -> list[tuple[int, int]]:
    """Pairs of factors that two slots may exchange: a prime, and a power of a lesser prime.

    The power is the greatest below the prime, or the next one: 3 for 2 or 4, and 7 for 4 or 8. It
    divides `extent`.
    """
    found = []
    for lesser, greater in combinations(primes(extent), 2):
        power = lesser
        while power * lesser < greater and extent % (power * lesser) == 0:
            power *= lesser
        found.append((greater, power))
        if extent % (power * lesser) == 0:
            found.append((greater, power * lesser))
    return found


def _following(factorings: Sequence[State]) -> dict[State, list[int]]:
    """Values that follow each prefix of the factorings, ascending."""
    following: dict[State, set[int]] = {}
    for factors in factorings:
        for at, factor in enumerate(factors):
            following.setdefault(factors[:at], set()).add(factor)
    return {prefix: sorted(values) for prefix, values in following.items()}
