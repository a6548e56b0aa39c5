"""The contract of a search, and what a search draws candidates from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from hetfeat.records import Program, Task

Score = Callable[[Sequence[Program]], npt.NDArray[np.floating[Any]]]
"""Scores of programs with features, float [n]; higher is faster."""

State = tuple[int, ...]
"""A point of a `Space`: tile factors or parameter values."""

Candidate = TypeVar("Candidate", covariant=True)
Result = TypeVar("Result", contravariant=True)


class Proposer(Protocol):
    """Draws programs, with features, from a task's design space."""

    def sample(self, task: Task, count: int, seed: int) -> list[Program]:
        """Up to `count` distinct random programs."""

    def vary(self, task: Task, parents: list[str], count: int, seed: int) -> list[Program]:
        """Up to `count` distinct programs a few changes away from the traces `parents`."""


class AppliesTraces(Proposer, Protocol):
    """A proposer that takes traces, too."""

    def apply(self, task: Task, traces: list[str]) -> list[Program]:
        """The programs of traces without post-processing, less those that do not apply."""


class Search(Protocol[Candidate, Result]):
    """Chooses what to measure; knows nothing of how it is measured."""

    def ask(self, count: int) -> Sequence[Candidate]:
        """Up to `count` candidates not asked before; empty when there are no more."""

    def tell(self, measurements: Sequence[Result]) -> None:
        """What became of candidates, in any order, not only of those asked for."""


@dataclass(frozen=True)
class Timed:
    """A state, its time and what measuring took.

    Attributes:
        state: The state.
        seconds: One run of its program; None is a failure.
        cost_s: Wall time of measuring it, building included; 0 for what is only looked up.
    """

    state: State
    seconds: float | None
    cost_s: float = 0.0


StateSearch = Search[State, Timed]
"""A search over a `Space`."""


class Space(Protocol):
    """A finite set of states, numbered, with moves between them."""

    @property
    def size(self) -> int:
        """Number of states."""

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Values that occur at each position of a state, ascending."""

    @property
    def actions(self) -> int:
        """Number of kinds of moves; not all are open in every state."""

    def state_at(self, index: int) -> State:
        """The state of a number below `size`."""

    def start(self) -> State | None:
        """Where a walk begins by custom, if the space has such a state."""

    def moves(self, state: State) -> list[tuple[int, State]]:
        """Neighbours, each with the number of the action that leads there."""

    def options(self, prefix: State) -> Sequence[int]:
        """Values that may follow at the next position, ascending; never empty for a prefix."""

    def vectors(self, states: Sequence[State]) -> npt.NDArray[np.float32]:
        """What models see of states: float32 [states, positions], each within 0..1."""
