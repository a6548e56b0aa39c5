"""A trace's tile decisions as a tile space, so that its searches run on any task of the tuner."""

import json
from dataclasses import dataclass
from math import prod

from hetfeat.schedules.trace import LOCATION, TILE, dump, innermost_limit, without_postproc
from hetfeat.search.base import State
from hetfeat.search.space import Dimension, TileSpace


def tiles_of(trace: str) -> tuple[tuple[Dimension, ...], State]:
    """The loops that a trace tiles, and their factors."""
    instructions, decisions = without_postproc(json.loads(trace))
    dimensions: list[Dimension] = []
    state: list[int] = []
    for index, factors in decisions:
        kind, _, attributes, _ = instructions[index]
        if kind == TILE:
            limit = innermost_limit(attributes)
            dimensions.append(Dimension(prod(factors), len(factors), limit))
            state += factors
    return tuple(dimensions), tuple(state)


def _frame(trace: str) -> str:
    """What a trace decides beside its tiles, by which TVM may move where blocks are computed."""
    instructions, decisions = without_postproc(json.loads(trace))
    kept = [d for d in decisions if instructions[d[0]][0] not in (TILE, LOCATION)]
    return dump([instructions, kept])


@dataclass(frozen=True)
class TraceTiles:
    """The `SamplePerfectTile` decisions of a trace; all else in it stays as it is.

    Attributes:
        trace: Trace as JSON.
        space: Space of its tile factors.
        state: Factors that it has now.
    """

    trace: str
    space: TileSpace
    state: State

    @classmethod
    def of(cls, trace: str) -> "TraceTiles":
        """The tiles of a trace."""
        dimensions, state = tiles_of(trace)
        return cls(trace, TileSpace(dimensions), state)

    def state_of(self, trace: str) -> State | None:
        """The state that a trace is; None where it is not in the space, or differs in more."""
        dimensions, state = tiles_of(trace)
        same = dimensions == self.space.dimensions and _frame(trace) == _frame(self.trace)
        return state if same and state in self.space else None

    def with_tiles(self, state: State) -> str:
        """The trace with other factors, as JSON; it is replayed without its post-processing."""
        instructions, decisions = without_postproc(json.loads(self.trace))
        rest = list(state)
        changed = []
        for index, value in decisions:
            if instructions[index][0] == TILE:
                value, rest = rest[: len(value)], rest[len(value) :]
            changed.append([index, value])
        return dump([instructions, changed])
