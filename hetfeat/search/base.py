"""The contracts of a search: what it draws candidates from, and whom it asks about them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from hetfeat.records import Measurement, Program, Task

Score = Callable[[Sequence[Program]], npt.NDArray[np.floating[Any]]]
"""Scores of programs with features, float [n]; higher is faster."""

RankTraces = Callable[[Sequence[str]], npt.NDArray[np.floating[Any]]]
"""Scores of traces of a task that nobody has applied, float [n]; higher is faster."""

Shown = Callable[[], Sequence[Program]]
"""Shows a few random programs of a task, among them one at least of each sketch."""

WarmStarts = Callable[[Shown], Sequence[Program]]
"""Gives the warm-start candidates of a task, best first, once its sketches can be shown."""

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

    def apply(self, task: Task, traces: list[str]) -> list[Program]:
        """The programs of traces without post-processing, less those that do not apply."""


class Search(Protocol[Candidate, Result]):
    """Chooses what to measure; knows nothing of how it is measured."""

    def ask(self, count: int) -> Sequence[Candidate]:
        """Up to `count` candidates not asked before; empty when there are no more."""

    def tell(self, measurements: Sequence[Result]) -> None:
        """What became of candidates, in any order, not only of those asked for."""


@dataclass(frozen=True)
class Exploration:
    """What a search tries beside what its guidance scores best.

    Attributes:
        reserve_custom_sketches: Whether half of the picks are of custom sketches, whatever the
            scores: by default not. For a model that has learnt of none.
        score_warm_starts: Whether warm-start candidates compete by their scores: by default they
            are measured first, without being scored.
    """

    reserve_custom_sketches: bool = False
    score_warm_starts: bool = False


class Guidance(Protocol):
    """What is thought of one task's candidates; a search asks anew whenever it chooses."""

    @property
    def score(self) -> Score | None:
        """Scores programs; None while there is no model."""

    @property
    def rank_traces(self) -> RankTraces | None:
        """Ranks traces before they are applied; None where that is not known of the task."""

    @property
    def exploration(self) -> Exploration:
        """What to try whatever the scores."""


@dataclass(frozen=True)
class FixedGuidance:
    """A `Guidance` that never changes; by default one that knows nothing.

    Attributes:
        score: Scores of programs; none by default.
        rank_traces: Scores of unapplied traces; none by default.
        exploration: Settings of what to try whatever the scores; those of `Exploration` by default.
    """

    score: Score | None = None
    rank_traces: RankTraces | None = None
    exploration: Exploration = field(default_factory=Exploration)


def no_warm_starts(shown: Shown) -> Sequence[Program]:
    """The `WarmStarts` of a search that begins with none."""
    return ()


UNGUIDED = FixedGuidance()
"""Guidance that knows nothing: a search picks at random."""


class TaskSearch(Search[Program, Measurement], Protocol):
    """A search over the programs of one task.

    Attributes:
        is_guided: Whether it asks a `Guidance`, so that a model is worth training meanwhile.
    """

    is_guided: bool

    def pick(self) -> Program | None:
        """The program to take where nothing is measured; None where nothing tells."""


@dataclass(frozen=True)
class Timed:
    """A state, its time and what measuring took.

    Attributes:
        state: State that was measured.
        seconds: Time of one run of its program, in seconds; None for a failure.
        cost_s: Wall time of measuring it in seconds, building included; 0, the default, for what
            is only looked up.
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

    def exchanges(self, state: State) -> list[State]:
        """Neighbours farther away, where two positions give each other a factor; often none."""

    def options(self, prefix: State) -> Sequence[int]:
        """Values that may follow at the next position, ascending; never empty for a prefix."""

    def vectors(self, states: Sequence[State]) -> npt.NDArray[np.float32]:
        """What models see of states: float32 [states, positions], each within 0..1."""
