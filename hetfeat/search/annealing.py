"""Simulated annealing on measured times."""

import math
import random
from collections.abc import Sequence

from hetfeat.search.base import Space, State, Timed
from hetfeat.search.visited import Visits


class Annealing:
    """A `StateSearch`: one walker; a neighbour is taken by Metropolis' rule on the log of its time.

    Neighbours measured before are not asked for again; a walker that has no others starts anew at
    a random state. The defaults were chosen once, on no space.

    Args:
        space: Space to search.
        seed: Seed of every draw.
        start_temperature: Temperature at first, in e-folds of time: a state so much slower than
            the current one is taken with probability 1/e. 0.5 by default.
        cooling: Factor on the temperature with each measurement; 0.99 by default.
        least_temperature: Temperature at which cooling ends, in e-folds; 0.01 by default.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        *,
        start_temperature: float = 0.5,
        cooling: float = 0.99,
        least_temperature: float = 0.01,
    ) -> None:
        self._space = space
        self._cooling, self._least_temperature = cooling, least_temperature
        self._rng = random.Random(seed)
        self._visits = Visits(space, self._rng)
        self._temperature = start_temperature
        self._current: Timed | None = None

    def ask(self, count: int) -> list[State]:
        """See `Search.ask`; one state at a time, since each depends on the one before."""
        if count < 1:
            return []
        if self._current is not None:
            moves = self._space.moves(self._current.state)
            unvisited = [state for _, state in moves if state not in self._visits]
            if unvisited:
                chosen = self._rng.choice(unvisited)
                self._visits.add(chosen)
                return [chosen]
            self._current = None
        return self._visits.fresh(1)

    def tell(self, measurements: Sequence[Timed]) -> None:
        """See `Search.tell`."""
        for timed in measurements:
            self._visits.add(timed.state)
            cooled = self._temperature * self._cooling
            self._temperature = max(self._least_temperature, cooled)
            if timed.seconds is not None and self._accepts(timed.seconds):
                self._current = timed

    def _accepts(self, seconds: float) -> bool:
        if self._current is None or self._current.seconds is None:
            return True
        rise = math.log(seconds / self._current.seconds)
        return rise <= 0 or self._rng.random() < math.exp(-rise / self._temperature)
