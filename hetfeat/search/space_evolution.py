"""The network tuner's evolution on a `Space`, to compare with: the same code, without a model."""

import json
import random
from collections.abc import Iterable, Sequence

from hetfeat.records import Measurement, Program, Task
from hetfeat.search.base import Space, State, Timed
from hetfeat.search.evolution import Evolution, EvolutionConfig
from hetfeat.search.visited import Visits


class SpaceEvolution:
    """A `StateSearch` by `Evolution`; a state is a program whose trace is the state as JSON.

    Args:
        space: Space to search.
        seed: Seed of every draw.
        most_moves: Most moves between a parent and what varies it; 2 by default, as "a few
            changes" do in a trace.
        config: Sizes and shares; those of `EvolutionConfig` by default.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        *,
        most_moves: int = 2,
        config: EvolutionConfig | None = None,
    ) -> None:
        self._space, self._most_moves = space, most_moves
        self._visits = Visits(space, random.Random(seed))
        self._task = Task("space", "space", (), "float32", 0.0)
        self._search = Evolution(self._task, self, seed, config=config or EvolutionConfig())

    def ask(self, count: int) -> list[State]:
        """See `Search.ask`."""
        asked = [_state(program) for program in self._search.ask(count)]
        chosen = [state for state in asked if self._visits.add(state)]
        return self._visits.fill(chosen, count)

    def tell(self, measurements: Sequence[Timed]) -> None:
        """See `Search.tell`."""
        for timed in measurements:
            self._visits.add(timed.state)
        self._search.tell([self._measurement(timed) for timed in measurements])

    def sample(self, task: Task, count: int, seed: int) -> list[Program]:
        """See `Proposer.sample`."""
        rng = random.Random(seed)
        return self._programs(
            self._space.state_at(rng.randrange(self._space.size)) for _ in range(count)
        )

    def vary(self, task: Task, parents: list[str], count: int, seed: int) -> list[Program]:
        """See `Proposer.vary`."""
        rng = random.Random(seed)
        varied = []
        for _ in range(count):
            state = tuple(json.loads(rng.choice(parents)))
            for _ in range(rng.randint(1, self._most_moves)):
                moves = self._space.moves(state)
                state = rng.choice(moves)[1] if moves else state
            varied.append(state)
        return self._programs(varied)

    def apply(self, task: Task, traces: list[str]) -> list[Program]:
        """See `Proposer.apply`; every state applies."""
        return [Program(self._task, trace) for trace in traces]

    def _programs(self, states: Iterable[State]) -> list[Program]:
        return [Program(self._task, json.dumps(state)) for state in dict.fromkeys(states)]

    def _measurement(self, timed: Timed) -> Measurement:
        program = Program(self._task, json.dumps(timed.state))
        times = (timed.seconds,) if timed.seconds else ()
        return Measurement(program, "space", times, None if times else "run", 0.0, "")


def _state(program: Program) -> State:
    return tuple(json.loads(program.trace))
