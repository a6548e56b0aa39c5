"""G-BFS: lightweight greedy best-first search (Zhang et al. 2019, arXiv 1909.10616).

The algorithm is described in US patent 11,842,178 B2. Exchanges of factors are not of the paper.
"""

import heapq
import random
from collections.abc import Sequence

from hetfeat.search.base import Space, State, Timed
from hetfeat.search.visited import Visits


class GreedyBestFirst:
    """A `StateSearch`: a queue of measured states by their time; the fastest is expanded next.

    Where the queue is empty, since all that was measured failed or has no new neighbours, a random
    state is asked for, so that the search goes on in any space.

    Args:
        space: Space to search.
        seed: Seed of every draw.
        fan_out: Random neighbours measured of each state taken from the queue; 5 by default, the
            paper's rho.
        exchanges: Whether `Space.exchanges` are neighbours, too; True by default. With False
            neighbours are the paper's, which move one prime factor.
    """

    def __init__(
        self, space: Space, seed: int, *, fan_out: int = 5, exchanges: bool = True
    ) -> None:
        self._space, self._fan_out, self._exchanges = space, fan_out, exchanges
        self._rng = random.Random(seed)
        self._visits = Visits(space, self._rng)
        self._queue: list[tuple[float, State]] = []
        self._pending: list[State] = []
        if start := space.start():
            self._visits.add(start)
            self._pending = [start]

    def ask(self, count: int) -> list[State]:
        """See `Search.ask`; the neighbours of one state at a time."""
        while not self._pending and self._queue:
            _, state = heapq.heappop(self._queue)
            unvisited = [s for s in self._neighbours(state) if s not in self._visits]
            self._pending = self._rng.sample(unvisited, min(self._fan_out, len(unvisited)))
            for neighbour in self._pending:
                self._visits.add(neighbour)
        asked, self._pending = self._pending[:count], self._pending[count:]
        return self._visits.fill(asked, count)

    def _neighbours(self, state: State) -> list[State]:
        moved = [state for _, state in self._space.moves(state)]
        return moved + self._space.exchanges(state) if self._exchanges else moved

    def tell(self, measurements: Sequence[Timed]) -> None:
        """See `Search.tell`."""
        for timed in measurements:
            self._visits.add(timed.state)
            if timed.seconds is not None:
                heapq.heappush(self._queue, (timed.seconds, timed.state))
