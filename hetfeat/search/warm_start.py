"""Searches warmed by another device: by its ranking, or by a cost model trained on it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from hetfeat.errors import RequestError
from hetfeat.search.base import State, StateSearch, Timed
from hetfeat.search.prior import Floats, Prior
from hetfeat.search.recorded import RecordedSpace
from hetfeat.search.strategies import make_search
from hetfeat.search.surrogate import SurrogateSearch

BOOSTING: Mapping[str, float] = MappingProxyType({"max_depth": 8, "eta": 0.1, "nthread": 1})
"""Parameters of XGBoost for a model of another device, by default."""


def recorded_prior(source: RecordedSpace, space: RecordedSpace) -> Prior:
    """The times that `source` recorded of the states of `space`.

    Raises:
        RequestError: The two have other parameters, or no state in common.
    """
    _check_same_parameters(source, space)
    states = {space.values(state): state for state in space.states}
    log_times = {
        states[values]: float(np.log(seconds))
        for values, seconds in zip(map(source.values, source.states), source.times_s, strict=True)
        if seconds == seconds and values in states
    }
    return _prior(log_times)


def model_prior(
    source: RecordedSpace,
    space: RecordedSpace,
    measured: int,
    seed: int,
    *,
    rounds: int = 200,
    boosting: Mapping[str, float] = BOOSTING,
) -> Prior:
    """Times predicted by boosted trees, trained on measurements of another device.

    The values of both spaces are whole numbers, or the same values.

    Args:
        source: Recorded space of the other device.
        space: Space to be searched.
        measured: Random measurements of `source` that the trees learn from.
        seed: Seed of the choice of measurements, and of the trees.
        rounds: Number of trees; 200 by default.
        boosting: Parameters of XGBoost; trees of depth 8 on one thread by default.

    Raises:
        RequestError: The two have other parameters.
    """
    import xgboost

    _check_same_parameters(source, space)
    ran = np.flatnonzero(~np.isnan(source.times_s))
    rows = np.random.default_rng(seed).permutation(ran)[:measured]
    x = _parameters([source.states[row] for row in rows])
    matrix = xgboost.DMatrix(x, np.log(source.times_s[rows]))
    model = xgboost.train({**boosting, "seed": seed}, matrix, rounds)
    predicted = model.inplace_predict(_parameters(space.states)).tolist()
    return _prior(dict(zip(space.states, predicted, strict=True)))


def warmed_search(
    name: str, space: RecordedSpace, seed: int, prior: Prior | None, *, first: int = 8
) -> StateSearch:
    """A search by the name of its strategy, which begins with what the prior holds for fastest.

    `surrogate` learns, beyond that, how far the prior's times are to be trusted.

    Args:
        name: Name among `strategies.STRATEGIES`.
        space: Space to search.
        seed: Seed of every draw.
        prior: Expectation from another device; None for a cold search.
        first: Fastest states of the prior that are measured before anything else; 8 by default.
            `surrogate` decides that itself.
    """
    if prior is None:
        return make_search(name, space, seed)
    if name == "surrogate":
        return SurrogateSearch(space, seed, prior)
    return Warmed(make_search(name, space, seed), prior.ranking[:first])


class Warmed:
    """A `StateSearch` that asks for given states first and tells another of them."""

    def __init__(self, search: StateSearch, first: Sequence[State]) -> None:
        self._search, self._first = search, list(first)
        self._asked = set(first)

    def ask(self, count: int) -> list[State]:
        """See `Search.ask`."""
        if self._first:
            asked, self._first = self._first[:count], self._first[count:]
            return asked
        while states := self._search.ask(count):
            # The other may have had a state in mind before it was told of it.
            if new := [state for state in states if state not in self._asked]:
                return new
        return []

    def tell(self, measurements: Sequence[Timed]) -> None:
        """See `Search.tell`."""
        self._search.tell(measurements)


def _prior(log_times: dict[State, float]) -> Prior:
    if not log_times:
        raise RequestError(
            "a prior without a state of the space",
            "a space measured on two devices",
            "give another file as --prior",
        )
    ranking = sorted(log_times, key=log_times.__getitem__)
    return Prior(ranking, log_times, max(log_times.values()))


def _check_same_parameters(source: RecordedSpace, space: RecordedSpace) -> None:
    if source.parameters != space.parameters:
        raise RequestError(
            f"a prior over {', '.join(source.parameters)}",
            f"one over the space's own {', '.join(space.parameters)}",
            "give the same kernel measured on another device as --prior",
        )


def _parameters(states: Sequence[State]) -> Floats:
    """The values themselves: what two spaces have in common."""
    return np.array(states, np.float64)
