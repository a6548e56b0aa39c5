"""What every search has to do on every kind of space.

from hetfeat.testing.searches import SearchConformance

class TestClimbing(SearchConformance):
    name = "climbing"
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hetfeat.search.base import Timed
from hetfeat.search.runner import run_search
from hetfeat.search.strategies import make_search
from hetfeat.search.warm_start import Warmed
from hetfeat.testing import spaces

State = tuple[int, ...]
TimeOf = Callable[[State], float | None]
Kind = Callable[[Path], tuple[Any, TimeOf]]


def small_recorded(folder: Path) -> tuple[Any, TimeOf]:
    """A hundred states, some of which fail."""
    space = spaces.recorded(folder)
    return space, space.time_s


def unconnected(folder: Path) -> tuple[Any, TimeOf]:
    """Two parts that no move connects."""
    space = spaces.islands(folder)
    return space, space.time_s


def tiles(folder: Path) -> tuple[Any, TimeOf]:
    """Tilings of a matrix product."""
    found = spaces.TimedTiles(24, 8, 4)
    return found.space, found.time_s


def primes(folder: Path) -> tuple[Any, TimeOf]:
    """Tilings of which few are possible."""
    found = spaces.TimedTiles(7, 1, 13)
    return found.space, found.time_s


def one_state(folder: Path) -> tuple[Any, TimeOf]:
    """A space of one state."""
    space = spaces.recorded(folder, spaces.cache({"8,8,1,0,32": 1.0}))
    return space, space.time_s


def all_fail_but_one(folder: Path) -> tuple[Any, TimeOf]:
    """A space in which nearly nothing runs."""
    space = spaces.recorded(folder)
    last = space.states[-1]
    return space, lambda state: 1.0 if state == (8, 8, 1, 0) else None if state != last else 2.0


KINDS = [small_recorded, unconnected, tiles, primes, one_state, all_fail_but_one]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def measured(
    name: str, space: Any, time_s: TimeOf, budget: int, seed: int = 0
) -> tuple[list[State], Any]:
    """The states in the order in which they were asked for, and the run."""
    asked: list[State] = []

    def measure(states: Sequence[State]) -> list[Timed]:
        asked.extend(states)
        return [Timed(state, time_s(state)) for state in states]

    return asked, run_search(make_search(name, space, seed), measure, budget)


class SearchConformance:
    """The tests. A subclass says the name of its search, one of the table or of a plug-in.

    Attributes:
        name: Name of the search.
    """

    name: ClassVar[str]

    @pytest.fixture
    def search(self) -> str:
        """The name; parametrize it to test several."""
        return self.name

    @every_kind
    def test_states_are_legal_distinct_and_all_of_them_in_the_end(
        self, search: str, kind: Kind, tmp_path: Path
    ) -> None:
        """None is asked for twice, none is left out, and the best is the best."""
        space, time_s = kind(tmp_path)
        asked, trial = measured(search, space, time_s, space.size + 10)
        assert len(set(asked)) == len(asked) == trial.evaluations
        assert set(asked) == {space.state_at(i) for i in range(space.size)}
        times = [time_s(state) for state in asked]
        assert trial.best_s == min(t for t in times if t is not None)

    @every_kind
    def test_the_budget_is_kept(self, search: str, kind: Kind, tmp_path: Path) -> None:
        """Not one state more is measured."""
        space, time_s = kind(tmp_path)
        for budget in (1, min(19, space.size)):
            assert measured(search, space, time_s, budget)[1].evaluations == budget

    def test_a_seed_gives_one_sequence(self, search: str, tmp_path: Path) -> None:
        """The same seed asks for the same states, another one for others."""
        space, time_s = small_recorded(tmp_path)
        first, again, other = (measured(search, space, time_s, 60, s)[0] for s in (3, 3, 4))
        assert first == again
        assert first != other

    def test_all_failing_is_survived(self, search: str, tmp_path: Path) -> None:
        """Where nothing runs, all is tried and nothing is best."""
        space, _ = small_recorded(tmp_path)
        asked, trial = measured(search, space, lambda state: None, 200)
        assert len(asked) == space.size
        assert trial.best is None
        assert trial.curve_s == [None] * space.size

    def test_what_others_measured_is_not_asked_for(self, search: str, tmp_path: Path) -> None:
        """What it is told of first, it does not ask for."""
        space, time_s = small_recorded(tmp_path)
        warmed = Warmed(make_search(search, space, 0), space.states[::2])
        asked: list[State] = []
        while states := warmed.ask(7):
            asked += states
            warmed.tell([Timed(state, time_s(state)) for state in states])
        assert sorted(asked) == space.states

    def test_nothing_is_asked_for_when_nothing_is_wanted(self, search: str, tmp_path: Path) -> None:
        """`ask(0)` is empty."""
        assert list(make_search(search, small_recorded(tmp_path)[0], 0).ask(0)) == []
