"""Which states have been asked for or told of, and random ones that have not: O(1) a state."""

import random

from hetfeat.search.base import Space, State


class Visits:
    """The states of a space that are settled.

    Random states come from a shuffle of all numbers that is made as far as it is needed: each is
    drawn at most once, so that a whole space can be drawn without ever searching for what is left.
    """

    def __init__(self, space: Space, rng: random.Random) -> None:
        self._space, self._rng = space, rng
        self._visited: set[State] = set()
        self._swapped: dict[int, int] = {}
        self._undrawn = space.size

    def __contains__(self, state: State) -> bool:
        return state in self._visited

    def add(self, state: State) -> bool:
        """Settles a state; whether it was new."""
        if state in self._visited:
            return False
        self._visited.add(state)
        return True

    def fresh(self, count: int) -> list[State]:
        """Up to `count` random states that were not settled, and now are."""
        states: list[State] = []
        while len(states) < count and self._undrawn:
            at = self._rng.randrange(self._undrawn)
            self._undrawn -= 1
            index = self._swapped.get(at, at)
            self._swapped[at] = self._swapped.pop(self._undrawn, self._undrawn)
            state = self._space.state_at(index)
            if self.add(state):
                states.append(state)
        return states

    def fill(self, chosen: list[State], count: int) -> list[State]:
        """`chosen`, or one random state where a search has nothing of its own to ask for."""
        return chosen or self.fresh(min(count, 1))
