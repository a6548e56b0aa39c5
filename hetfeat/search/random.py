"""Random search: distinct states, drawn evenly. What every other search must beat."""

import random
from collections.abc import Sequence

from hetfeat.search.base import Space, State, Timed
from hetfeat.search.visited import Visits


class RandomSearch:
    """A `StateSearch` that learns nothing."""

    def __init__(self, space: Space, seed: int) -> None:
        self._visits = Visits(space, random.Random(seed))

    def ask(self, count: int) -> list[State]:
        """See `Search.ask`."""
        return self._visits.fresh(count)

    def tell(self, measurements: Sequence[Timed]) -> None:
        """See `Search.tell`."""
        for timed in measurements:
            self._visits.add(timed.state)
