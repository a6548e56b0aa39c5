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
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hetfeat.search.base import Space, State, Timed
from hetfeat.search.gaussian_process import Covariance, Floats, Process, StateFeatures
from hetfeat.search.visited import Visits

if TYPE_CHECKING:
    from hetfeat.search.prior import Prior


@dataclass(frozen=True)
class SurrogateConfig:
    """Settings of `SurrogateSearch`, chosen on spaces that docs/experiments names.

    Attributes:
        start: Measurements before there is a model; 8 by default.
        picks: Most states chosen with one model; 4 by default.
        leaders: Fastest states whose neighbours, and the neighbours' own, are candidates; 8 by
            default.
        anywhere: Random candidates; 500 by default: what is fast far from the fastest so far is
            not found by moves.
        curiosity: Standard deviations below the mean by which a candidate is scored; 1 by default.
        boredom: Standard deviations by which that grows with each measurement since the last gain;
            0.06 by default: a search that is stuck looks further.
        patience: Measurements without a gain after which every other batch is chosen as by G-BFS,
            lest the model keep all of the search in one valley; 60 by default.
        fan_out: Random neighbours of one state in such a batch; 5 by default, as in G-BFS.
        clip: Log time above the best from which on all are the same, in e-folds; 1.5 by default:
            slow is slow.
        kept: Measurements that the model is made of, the fastest half of them and others at
            random; 300 by default.
        failures: Latest failures, which count as the slowest; 50 by default.
        promising: Fastest states of a prior that are candidates, too; 256 by default.
        noise: Variance of a log time beside the process, for log times of variance 1; 0.01 by
            default.
        pair_weights: Weights of what two positions add together, of which the likeliest is taken;
            (0, 0.5) by default.
        shortlist: Candidates of lowest mean whose variance is computed; 600 by default.
    """

    start: int = 8
    picks: int = 4
    leaders: int = 8
    anywhere: int = 500
    curiosity: float = 1.0
    boredom: float = 0.06
    patience: int = 60
    fan_out: int = 5
    clip: float = 1.5
    kept: int = 300
    failures: int = 50
    promising: int = 256
    noise: float = 1e-2
    pair_weights: tuple[float, ...] = (0.0, 0.5)
    shortlist: int = 600


class SurrogateSearch:
    """A `StateSearch` by a Gaussian process.

    With a prior, the process models how the log time differs from the prior's, scaled by how far
    the two went together in what was measured.

    Args:
        space: Space to search.
        seed: Seed of every draw.
        prior: Expectation from another device, whose fastest states are measured first and stay
            candidates; None, the default, for none.
        config: Settings; those of `SurrogateConfig` by default.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        prior: "Prior | None" = None,
        *,
        config: SurrogateConfig = SurrogateConfig(),
    ) -> None:
        self._space, self._prior, self._config = space, prior, config
        self._rng = random.Random(seed)
        self._visits = Visits(space, self._rng)
        self._seen = StateFeatures(space)
        self._around: dict[State, list[State]] = {}
        self._promising = deque(prior.ranking[: config.promising] if prior else ())
        self._ran: list[Timed] = []  # the fastest first
        self._turn = False
        self._queue: list[tuple[float, State]] = []
        self._since_gain = 0
        self._failed: deque[Timed] = deque(maxlen=config.failures)

    def ask(self, count: int) -> list[State]:
        """See `Search.ask`."""
        config = self._config
        if len(self._ran) + len(self._failed) < config.start or not self._ran:
            return self._begin(count)
        self._turn = not self._turn
        if self._since_gain > config.patience and self._turn:
            chosen = self._expand(min(count, config.fan_out))
        else:
            pool = self._pool()
            chosen = self._choose(pool, min(count, config.picks, len(pool))) if pool else []
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
                near = self._around.get(timed.state) or self._near(timed.state)
                around[timed.state] = near
                pool.update((state, None) for state in near if state not in self._visits)
            if len(around) == self._config.leaders:
                break
        self._around = around  # most leaders stay for a while
        size = self._space.size
        numbers = [self._rng.randrange(size) for _ in range(min(self._config.anywhere, size))]
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
        config = self._config
        states, log_times = self._training()
        expected, expected_there = self._expected(states, log_times, pool)
        rest = log_times - expected
        scale = rest.std() + 1e-9
        x, positions = self._seen(states), self._seen.positions
        processes = (
            Process.of(Covariance(positions, weight), x, rest / scale, noise=config.noise)
            for weight in config.pair_weights
        )
        process = max(processes, key=lambda process: process.evidence)
        lowest = process.lowest(
            self._seen(pool),
            expected_there / scale,
            config.curiosity + config.boredom * self._since_gain,
            count,
            shortlist=config.shortlist,
        )
        return [pool[at] for at in lowest]

    def _training(self) -> tuple[list[State], Floats]:
        """What the model is made of: states and their log times over the best."""
        ran, kept = self._ran, self._config.kept
        if len(ran) > kept:
            half = kept // 2
            ran = ran[:half] + self._rng.sample(ran[half:], kept - half)
        over_best = np.log([_seconds(timed) / _seconds(self._ran[0]) for timed in ran])
        log_times = np.minimum(over_best, self._config.clip)
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
        clip = self._config.clip
        here, there = (np.minimum(self._prior(s) - best, clip) for s in (states, pool))
        trust = max(0.0, float(np.cov(here, log_times)[0, 1] / (here.var() + 1e-3)))
        return mean + trust * (here - here.mean()), mean + trust * (there - here.mean())


def _seconds(timed: Timed) -> float:
    """The time of a state that ran."""
    assert timed.seconds is not None
    return timed.seconds
