"""Our own search: greedy as G-BFS, but a Gaussian process says which states to measure.

Candidates are the unvisited states up to two moves from the fastest, and others from anywhere. Of
these it takes the lowest confidence bound of the log time (Srinivas et al. 2010), one after
another, each with the variance that is left once those before it are known, so that the picks of a
batch do not crowd. Of the process nothing is fitted but the weights, and whether positions add
something in pairs, so that it costs little beside a measurement. Where it is stuck it looks
further, and lets G-BFS choose every other batch.
"""

import bisect
import heapq
import random
from collections import deque
from collections.abc import Sequence

import numpy as np

from hetfeat.search.base import Space, State, Timed
from hetfeat.search.gaussian_process import PAIRS, Covariance, Floats, Process, StateFeatures
from hetfeat.search.gbfs import FAN_OUT
from hetfeat.search.prior import Prior
from hetfeat.search.visited import Visits

START = 8
"""Random states before there is a model."""
PICKS = 4
"""Most states chosen with one model."""
LEADERS = 8
"""How many of the fastest have their neighbours in the pool, and the neighbours' own."""
ANYWHERE = 500
"""Random states in the pool: what is fast far from the fastest so far is not found by moves."""
CURIOSITY, BOREDOM = 1.0, 0.06
"""Standard deviations below the mean by which a candidate is judged, and by how many that grows
with each measurement since the last gain: a search that is stuck looks further."""
PATIENCE = 60
"""Measurements without a gain after which every other batch is G-BFS's: a model that keeps the
search in one valley must not keep all of it there."""
CLIP = 1.5
"""Log times further above the best than this are all the same: slow is slow."""
KEPT = 300
"""Measurements that the model is made of: the fastest half of them, and others at random."""
FAILURES = 50
"""The latest failures, which count as the slowest."""
PROMISING = 256
"""A prior's fastest states, which are candidates, too."""


class SurrogateSearch:
    """A `StateSearch` by a Gaussian process.

    Args:
        space: The space.
        seed: Seed of every draw.
        prior: What another device lets expect, if anything: its fastest states are measured first
            and stay candidates, and the process models how the log time differs from the prior's,
            scaled by how far the two went together in what was measured.
    """

    def __init__(self, space: Space, seed: int, prior: Prior | None = None) -> None:
        self._space, self._prior = space, prior
        self._rng = random.Random(seed)
        self._visits = Visits(space, self._rng)
        self._seen = StateFeatures(space)
        self._around: dict[State, list[State]] = {}
        self._promising = deque(prior.ranking[:PROMISING] if prior else ())
        self._ran: list[Timed] = []  # the fastest first
        self._turn = False
        self._queue: list[tuple[float, State]] = []
        self._since_gain = 0
        self._failed: deque[Timed] = deque(maxlen=FAILURES)

    def ask(self, count: int) -> list[State]:
        """See `Search.ask`."""
        if len(self._ran) + len(self._failed) < START or not self._ran:
            return self._begin(count)
        self._turn = not self._turn
        if self._since_gain > PATIENCE and self._turn:
            chosen = self._expand(min(count, FAN_OUT))
        else:
            pool = self._pool()
            chosen = self._choose(pool, min(count, PICKS, len(pool))) if pool else []
        for state in chosen:
            self._visits.add(state)
        return self._visits.filled(chosen, count)

    def tell(self, measurements: Sequence[Timed]) -> None:
        """See `Search.tell`."""
        for timed in measurements:
            self._visits.add(timed.state)
            self._since_gain += 1
            if timed.seconds is None:
                self._failed.append(timed)
                continue
            if not self._ran or timed.seconds < _seconds(self._ran[0]):
                self._since_gain = 0
            bisect.insort(self._ran, timed, key=_seconds)
            heapq.heappush(self._queue, (timed.seconds, timed.state))

    def _begin(self, count: int) -> list[State]:
        """States to make the first model of: the prior's fastest, or random ones."""
        chosen: list[State] = []
        while self._promising and len(chosen) < count:
            if self._visits.add(state := self._promising.popleft()):
                chosen.append(state)
        return chosen or self._visits.fresh(count)

    def _expand(self, count: int) -> list[State]:
        """Random neighbours of the fastest state that has not been expanded so, as in G-BFS."""
        while self._queue:
            _, state = heapq.heappop(self._queue)
            unvisited = [s for _, s in self._space.moves(state) if s not in self._visits]
            if unvisited:
                return self._rng.sample(unvisited, min(count, len(unvisited)))
        return []

    def _pool(self) -> list[State]:
        """Candidates, none of them visited."""
        pool = {state: None for state in self._promising if state not in self._visits}
        around: dict[State, list[State]] = {}
        for timed in self._ran:
            moves = self._space.moves(timed.state)
            if any(state not in self._visits for _, state in moves):
                found = self._around.get(timed.state) or self._near(timed.state)
                around[timed.state] = found
                pool.update((state, None) for state in found if state not in self._visits)
            if len(around) == LEADERS:
                break
        self._around = around  # most leaders stay for a while
        size = self._space.size
        numbers = [self._rng.randrange(size) for _ in range(min(ANYWHERE, size))]
        anywhere = map(self._space.state_at, numbers)
        pool.update((state, None) for state in anywhere if state not in self._visits)
        return list(pool)

    def _near(self, state: State) -> list[State]:
        """States up to two moves away."""
        near = [moved for _, moved in self._space.moves(state)]
        farther = (moved for via in near for _, moved in self._space.moves(via))
        return list(dict.fromkeys([*near, *farther]))

    def _choose(self, pool: Sequence[State], count: int) -> list[State]:
        """The candidates of lowest confidence bound."""
        states, log_times = self._training()
        expected, expected_there = self._expected(states, log_times, pool)
        rest = log_times - expected
        scale = rest.std() + 1e-9
        x, positions = self._seen(states), self._seen.positions
        processes = (Process.of(Covariance(positions, w), x, rest / scale) for w in PAIRS)
        process = max(processes, key=lambda process: process.evidence)
        curiosity = CURIOSITY + BOREDOM * self._since_gain
        lowest = process.lowest(self._seen(pool), expected_there / scale, curiosity, count)
        return [pool[at] for at in lowest]

    def _training(self) -> tuple[list[State], Floats]:
        """What the model is made of: states and their log times over the best."""
        ran = self._ran
        if len(ran) > KEPT:
            half = KEPT // 2
            ran = ran[:half] + self._rng.sample(ran[half:], KEPT - half)
        over_best = np.log([_seconds(timed) / _seconds(self._ran[0]) for timed in ran])
        log_times = np.minimum(over_best, CLIP)
        slowest = np.full(len(self._failed), log_times.max())
        states = [timed.state for timed in (*ran, *self._failed)]
        return states, np.concatenate([log_times, slowest])

    def _expected(
        self, states: Sequence[State], log_times: Floats, pool: Sequence[State]
    ) -> tuple[Floats, Floats]:
        """What is expected without the process, of measured states and of the pool."""
        mean = log_times.mean()
        if self._prior is None:
            return np.full(len(states), mean), np.full(len(pool), mean)
        best = self._prior.log_times[self._prior.ranking[0]]
        here, there = (np.minimum(self._prior(s) - best, CLIP) for s in (states, pool))
        trust = max(0.0, float(np.cov(here, log_times)[0, 1] / (here.var() + 1e-3)))
        return mean + trust * (here - here.mean()), mean + trust * (there - here.mean())


def _seconds(timed: Timed) -> float:
    """The time of a state that ran."""
    assert timed.seconds is not None
    return timed.seconds
