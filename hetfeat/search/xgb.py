"""XGBoost-guided search as AutoTVM's tuner does it: rounds of 64, chosen by annealing on a model.

Its settings are those of TVM's `XGBTuner`: rounds of 64 of which the first is random, 128 chains,
at most 500 steps of which the last 50 without gain end it, 5 % of a round at random, trees of depth
3. Its rounds of boosting are fixed here, where TVM's stop by the recall on what is trained on.
"""

import math
import random
from collections.abc import Sequence

from hetfeat.search.base import Space, State, Timed
from hetfeat.search.visited import Visits

PLAN = 64
CHAINS = 128
STEPS = 500
PATIENCE = 50
RANDOM_SHARE = 0.05
ROUNDS = 100
BOOSTING = {"max_depth": 3, "eta": 0.3, "gamma": 1e-4, "min_child_weight": 1, "nthread": 1}


class Scores:
    """A model's judgement of states, each asked for once; higher is faster."""

    def __init__(self, space: Space, measured: Sequence[Timed], seed: int) -> None:
        import xgboost

        self._space = space
        self._known: dict[State, float] = {}
        best_s = min(t.seconds for t in measured if t.seconds is not None)
        y = [best_s / t.seconds if t.seconds else 0.0 for t in measured]
        matrix = xgboost.DMatrix(space.vectors([t.state for t in measured]), y)
        self._model = xgboost.train(BOOSTING | {"seed": seed}, matrix, ROUNDS)

    def __call__(self, states: Sequence[State]) -> list[float]:
        """Scores of states."""
        unknown = [state for state in dict.fromkeys(states) if state not in self._known]
        if unknown:
            found = self._model.inplace_predict(self._space.vectors(unknown))
            self._known.update(zip(unknown, found.tolist(), strict=True))
        return [self._known[state] for state in states]

    def best(self, visits: Visits) -> list[State]:
        """States judged so far and not visited, the best first."""
        unvisited = [state for state in self._known if state not in visits]
        return sorted(unvisited, key=lambda state: -self._known[state])


class XgbSearch:
    """A `StateSearch` that plans rounds with a boosted model of what was measured."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._seed = space, seed
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
        if any(timed.seconds is not None for timed in self._measured):
            scores = Scores(self._space, self._measured, self._seed)
            self._anneal(scores)
            chosen = scores.best(self._visits)[: round((1 - RANDOM_SHARE) * PLAN)]
            for state in chosen:
                self._visits.add(state)
        return chosen + self._visits.fresh(PLAN - len(chosen))

    def _anneal(self, scores: Scores) -> None:
        """Walks uphill in the model's scores from random states; `scores` remembers the way."""
        points = [
            self._space.state_at(self._rng.randrange(self._space.size)) for _ in range(CHAINS)
        ]
        values = scores(points)
        best, last_gain = max(values), 0
        for step in range(STEPS):
            temperature = 1 - step / STEPS
            moves = [self._space.moves(point) for point in points]
            proposed = [
                self._rng.choice(m)[1] if m else point
                for m, point in zip(moves, points, strict=True)
            ]
            found = scores(proposed)
            for i, (new, old) in enumerate(zip(found, values, strict=True)):
                gain = min((new - old) / (temperature + 1e-5), 0.0)
                if self._rng.random() < math.exp(gain):
                    points[i], values[i] = proposed[i], new
            if max(found) > best:
                best, last_gain = max(found), step
            elif step - last_gain > PATIENCE:
                return
