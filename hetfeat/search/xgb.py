"""XGBoost-guided search as AutoTVM's tuner does it: rounds of 64, chosen by annealing on a model.

Its settings are those of TVM's `XGBTuner`, but that the rounds of boosting are fixed here, where
TVM's stop by the recall on what is trained on.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hetfeat.search.base import Space, State, Timed
from hetfeat.search.visited import Visits


def _boosting() -> Mapping[str, float]:
    return {"max_depth": 3, "eta": 0.3, "gamma": 1e-4, "min_child_weight": 1, "nthread": 1}


@dataclass(frozen=True)
class XgbConfig:
    """Settings of `XgbSearch`; the defaults are TVM's, but for `boosting_rounds`.

    Attributes:
        plan: States of a round, of which the first is random; 64 by default.
        chains: States that are annealed at once; 128 by default.
        steps: Most steps of annealing; 500 by default.
        patience: Steps without a gain that end it; 50 by default.
        random_share: Share of a round drawn at random; 0.05 by default.
        boosting_rounds: Trees of the model; 100 by default, and TVM's stop by recall.
        boosting: Parameters of XGBoost; trees of depth 3 on one thread by default.
    """

    plan: int = 64
    chains: int = 128
    steps: int = 500
    patience: int = 50
    random_share: float = 0.05
    boosting_rounds: int = 100
    boosting: Mapping[str, float] = field(default_factory=_boosting)


class Scores:
    """A model's scores of states, each computed once; higher is faster.

    Args:
        space: Space of the states.
        measured: States that the model learns from, at least one of which ran.
        seed: Seed of the model.
        config: Settings of the model; those of `XgbConfig` by default.
    """

    def __init__(
        self,
        space: Space,
        measured: Sequence[Timed],
        seed: int,
        config: XgbConfig = XgbConfig(),
    ) -> None:
        import xgboost

        self._space = space
        self._scores: dict[State, float] = {}
        best_s = min(t.seconds for t in measured if t.seconds is not None)
        y = [best_s / t.seconds if t.seconds else 0.0 for t in measured]
        matrix = xgboost.DMatrix(space.vectors([t.state for t in measured]), y)
        self._model = xgboost.train(
            {**config.boosting, "seed": seed}, matrix, config.boosting_rounds
        )

    def __call__(self, states: Sequence[State]) -> list[float]:
        """Scores of states."""
        new = [state for state in dict.fromkeys(states) if state not in self._scores]
        if new:
            scores = self._model.inplace_predict(self._space.vectors(new))
            self._scores.update(zip(new, scores.tolist(), strict=True))
        return [self._scores[state] for state in states]

    def best(self, visits: Visits) -> list[State]:
        """States scored so far and not visited, the best first."""
        unvisited = [state for state in self._scores if state not in visits]
        return sorted(unvisited, key=lambda state: -self._scores[state])


class XgbSearch:
    """A `StateSearch` that plans rounds with a boosted model of what was measured.

    Args:
        space: Space to search.
        seed: Seed of every draw, and of the models.
        config: Settings; those of `XgbConfig` by default.
    """

    def __init__(self, space: Space, seed: int, *, config: XgbConfig = XgbConfig()) -> None:
        self._space, self._seed, self._config = space, seed, config
        self._rng = random.Random(seed)
        self._visits = Visits(space, self._rng)
        self._measured: list[Timed] = []
        self._planned: list[State] = []

    def ask(self, count: int) -> list[State]:
        """See `Search.ask`."""
        if not self._planned:
            self._planned = self._plan()
        asked, self._planned = self._planned[:count], self._planned[count:]
        return asked

    def tell(self, measurements: Sequence[Timed]) -> None:
        """See `Search.tell`."""
        self._measured += measurements
        for timed in measurements:
            self._visits.add(timed.state)

    def _plan(self) -> list[State]:
        """The next round."""
        chosen: list[State] = []
        size = self._config.plan
        if any(timed.seconds is not None for timed in self._measured):
            scores = Scores(self._space, self._measured, self._seed, self._config)
            self._anneal(scores)
            chosen = scores.best(self._visits)[: round((1 - self._config.random_share) * size)]
            for state in chosen:
                self._visits.add(state)
        return chosen + self._visits.fresh(size - len(chosen))

    def _anneal(self, scores: Scores) -> None:
        """Walks uphill in the model's scores from random states; `scores` remembers the way."""
        size, steps = self._space.size, self._config.steps
        points = [
            self._space.state_at(self._rng.randrange(size)) for _ in range(self._config.chains)
        ]
        values = scores(points)
        best, last_gain = max(values), 0
        for step in range(steps):
            temperature = 1 - step / steps
            moves = [self._space.moves(point) for point in points]
            proposed = [
                self._rng.choice(m)[1] if m else point
                for m, point in zip(moves, points, strict=True)
            ]
            proposed_values = scores(proposed)
            for i, (new, old) in enumerate(zip(proposed_values, values, strict=True)):
                gain = min((new - old) / (temperature + 1e-5), 0.0)
                if self._rng.random() < math.exp(gain):
                    points[i], values[i] = proposed[i], new
            if max(proposed_values) > best:
                best, last_gain = max(proposed_values), step
            elif step - last_gain > self._config.patience:
                return
