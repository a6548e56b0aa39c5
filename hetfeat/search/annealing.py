"""Simulated annealing on measured times."""

import math
import random
from collections.abc import Sequence

from hetfeat.search.base import Space, State, Timed
from hetfeat.search.visited import Visits

START_TEMPERATURE = 0.5
"""A state this many e-folds slower than the current one is taken with probability 1/e."""
COOLING = 0.99
"""Factor on the temperature with each measurement. These three were chosen once, on no space."""
FLOOR = 0.01


class Annealing:
    """A `StateSearch`: one walker; a neighbour is taken by Metropolis' rule on the log of its time.

    Neighbours measured before are not asked for again; a walker that has no others starts anew at
    a random state.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._rng = random.Random(seed)
        self._visits = Visits(space, self._rng)
        self._temperature = START_TEMPERATURE
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
            self._temperature = max(FLOOR, self._temperature * COOLING)
            if timed.seconds is not None and self._accepts(timed.seconds):
                self._current = timed

    def _accepts(self, seconds: float) -> bool:
        if self._current is None or self._current.seconds is None:
            return True
        rise = math.log(seconds / self._current.seconds)
        return rise <= 0 or self._rng.random() < math.exp(-rise / self._temperature)
