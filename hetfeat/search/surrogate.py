"""Our own search: greedy as G-BFS, but a Gaussian process says which neighbours to measure.

Candidates are the unvisited neighbours of the fastest states, and for the very fastest those two
moves away. Of these it takes the lowest confidence bound of the log time (Srinivas et al. 2010),
one after another, each with the variance that is left once those before it are known, so that the
picks of a batch do not crowd. The kernel is fixed: a linear part, what each position adds wherever
one is, and a part that falls with the moves between two states. Nothing is fitted but the weights,
so that it costs little beside a measurement. Where it is stuck it looks further, and lets G-BFS
choose every other batch.
"""

import bisect
import heapq
import random
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hetfeat.search.base import Space, State, Timed
from hetfeat.search.gbfs import FAN_OUT
from hetfeat.search.visits import Visits

if TYPE_CHECKING:
    from hetfeat.search.warm import Prior

START = 8
"""Random states before there is a model."""
PICKS = 4
"""Most states chosen with one model."""
LEADERS = 8
FAR_LEADERS = 2
"""How many of the fastest have their neighbours in the pool, and how many also theirs."""
CURIOSITY, BOREDOM = 0.5, 0.06
"""Standard deviations below the mean by which a candidate is judged, and by how many that grows
with each measurement since the last gain: a search that is stuck looks further."""
PATIENCE = 60
"""Measurements without a gain after which every other batch is G-BFS's: a model that keeps the
search in one valley must not keep all of it there."""
NOISE = 1e-2
CLIP = 1.5
"""Log times further above the best than this are all the same: slow is slow."""
KEPT = 300
"""Measurements that the model is made of: the fastest half of them, and others at random."""
FAILURES = 50
"""The latest failures, which count as the slowest."""
PROMISING = 256
"""A prior's fastest states, which are candidates, too."""

Floats = npt.NDArray[np.float64]


class SurrogateSearch:
    """A `StateSearch` by a Gaussian process.

    Args:
        space: The space.
        seed: Seed of every draw.
        prior: What another device lets expect, if anything: its fastest states are measured first
            and stay candidates, and the process models how the log time differs from the prior's,
            scaled by how far the two went together in what was measured.
    """

    def __init__(self, space: Space, seed: int, prior: "Prior | None" = None) -> None:
        self._space, self._prior = space, prior
        self._rng = random.Random(seed)
        self._visits = Visits(space, self._rng)
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
        leaders = 0
        for timed in self._ran:
            near = [state for _, state in self._space.moves(timed.state)]
            unvisited = [state for state in near if state not in self._visits]
            if unvisited:
                pool.update(dict.fromkeys(unvisited))
                if leaders < FAR_LEADERS:
                    far = (state for via in unvisited for _, state in self._space.moves(via))
                    pool.update((state, None) for state in far if state not in self._visits)
                leaders += 1
            if leaders == LEADERS:
                break
        return list(pool)

    def _choose(self, pool: Sequence[State], count: int) -> list[State]:
        """The candidates of lowest confidence bound, each after those before it."""
        from scipy.linalg import cho_factor, cho_solve, solve_triangular

        states, log_times = self._training()
        x, candidates = (self._space.vectors(s).astype(np.float64) for s in (states, pool))
        expected, expected_there = self._expected(states, log_times, pool)
        rest = log_times - expected
        scale = rest.std() + 1e-9
        factor = cho_factor(kernel(x, x) + NOISE * np.eye(len(x)), lower=True)
        across = kernel(candidates, x)
        mean = expected_there / scale + across @ cho_solve(factor, rest / scale)
        known = solve_triangular(factor[0], across.T, lower=True)
        variance = kernel_diagonal(candidates) - (known**2).sum(axis=0)
        curiosity = CURIOSITY + BOREDOM * self._since_gain
        chosen: list[int] = []
        for _ in range(count):
            bound = mean - curiosity * np.sqrt(np.maximum(variance, 0.0))
            bound[chosen] = np.inf
            at = int(np.argmin(bound))
            chosen.append(at)
            left = kernel(candidates, candidates[[at]])[:, 0] - known.T @ known[:, at]
            row = left / np.sqrt(max(variance[at], 0.0) + NOISE)
            known, variance = np.vstack([known, row]), variance - row**2
        return [pool[at] for at in chosen]

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


def kernel(a: Floats, b: Floats) -> Floats:
    """Covariance of states, float64 [a, b], from their vectors in 0..1."""
    from scipy.spatial.distance import cdist

    near: Floats = np.exp(-cdist(a, b, "cityblock"))
    linear: Floats = 4 * (a - 0.5) @ (b - 0.5).T / a.shape[1]
    return near + linear


def kernel_diagonal(a: Floats) -> Floats:
    """Variance of each state, float64 [a]."""
    diagonal: Floats = 1 + 4 * ((a - 0.5) ** 2).sum(axis=1) / a.shape[1]
    return diagonal


def _seconds(timed: Timed) -> float:
    """The time of a state that ran."""
    assert timed.seconds is not None
    return timed.seconds
