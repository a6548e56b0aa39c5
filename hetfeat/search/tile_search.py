"""The strategies of tile spaces as searches of the network tuner."""

from collections.abc import Sequence

from hetfeat.records import Measurement, Program, Task
from hetfeat.search.base import Proposer, StateSearch, Timed, WarmStarts, no_warm_starts
from hetfeat.search.strategies import make_search
from hetfeat.search.trace_tiles import TraceTiles, tiles_of


class TileSearch:
    """A `TaskSearch` over one task's tile factors by a strategy of states and times only.

    The first candidates are the warm-start candidates, and random programs. The tiles of the
    fastest of them are then searched; all else in its trace stays as it is.

    Args:
        strategy: Name among `strategies.STRATEGIES`.
        task: Task whose programs are searched.
        proposer: Source of programs.
        seed: Seed of every draw.
        warm_starts: Function that gives the warm-start candidates; by default there are none.
        sketch_samples: Random programs that show it the sketches of the task; 8 by default.
        fruitless_states: States in a row without a new program after which the task counts as
            exhausted; 256 by default: of a space refused nearly everywhere, trying all takes hours.
    """

    is_guided = False

    def __init__(
        self,
        strategy: str,
        task: Task,
        proposer: Proposer,
        seed: int,
        *,
        warm_starts: WarmStarts = no_warm_starts,
        sketch_samples: int = 8,
        fruitless_states: int = 256,
    ) -> None:
        self._strategy, self._task, self._proposer = strategy, task, proposer
        self._seed, self._warm_starts, self._sketch_samples = seed, warm_starts, sketch_samples
        self._fruitless_states = fruitless_states
        self._told: list[Measurement] = []
        self._told_keys: set[str] = set()
        self._tiles: TraceTiles | None = None
        self._search: StateSearch | None = None

    def ask(self, count: int) -> list[Program]:
        """See `Search.ask`."""
        if self._search is None and not self._begin():
            draw = self._seed + len(self._told)  # what failed is not drawn again
            warm_starts = self._warm_starts(self._show_sketches)
            first = [*warm_starts, *self._proposer.sample(self._task, count, draw)]
            fresh = {p.key: p for p in first if p.key not in self._told_keys}
            return list(fresh.values())[:count]
        assert self._search is not None and self._tiles is not None
        fruitless = 0
        while fruitless < self._fruitless_states and (states := self._search.ask(count)):
            fruitless += len(states)
            traces = [self._tiles.with_tiles(state) for state in states]
            programs = self._proposer.apply(self._task, traces)
            applied = {tiles_of(program.trace)[1] for program in programs}
            self._search.tell([Timed(state, None) for state in states if state not in applied])
            if fresh_programs := [p for p in programs if p.key not in self._told_keys]:
                return fresh_programs
        return []

    def tell(self, measurements: Sequence[Measurement]) -> None:
        """See `Search.tell`."""
        self._told += measurements
        self._told_keys.update(measurement.program.key for measurement in measurements)
        if self._search is not None:
            self._pass_on(measurements)

    def pick(self) -> None:
        """Nothing: no model judges what nobody has measured."""

    def _show_sketches(self) -> Sequence[Program]:
        """A few random programs, among them one of each sketch."""
        return self._proposer.sample(self._task, self._sketch_samples, self._seed)

    def _begin(self) -> bool:
        """Starts the strategy at the fastest program, if there is one."""
        ran = [m for m in self._told if m.latency_s is not None]
        if not ran:
            return False
        fastest = min(ran, key=lambda m: m.latency_s or 0.0)
        self._tiles = TraceTiles.of(fastest.program.trace)
        self._search = make_search(self._strategy, self._tiles.space, self._seed)
        self._pass_on(self._told)
        return True

    def _pass_on(self, measurements: Sequence[Measurement]) -> None:
        """Tells the strategy of programs that are states of its space."""
        assert self._search is not None and self._tiles is not None
        states = [(self._tiles.state_of(m.program.trace), m.latency_s) for m in measurements]
        self._search.tell([Timed(state, seconds) for state, seconds in states if state is not None])
