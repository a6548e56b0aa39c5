"""The strategies there are, by name."""

from collections.abc import Sequence
from typing import cast

from hetfeat.errors import not_one_of
from hetfeat.plugins import resolve, with_plugins
from hetfeat.search.base import Space, StateSearch

STRATEGIES = with_plugins(
    "hetfeat.searches",
    {
        "random": "hetfeat.search.random:RandomSearch",
        "annealing": "hetfeat.search.annealing:Annealing",
        "gbfs": "hetfeat.search.gbfs:GreedyBestFirst",
        "na2c": "hetfeat.search.na2c:NeighbourhoodA2C",
        "rnn": "hetfeat.search.rnn:RnnSearch",
        "xgb": "hetfeat.search.xgb:XgbSearch",
        "evolution": "hetfeat.search.space_evolution:SpaceEvolution",
        "surrogate": "hetfeat.search.surrogate:SurrogateSearch",
    },
)
"""Name -> import string, loaded when asked for; each is made of a space and a seed."""


def check_strategies(names: Sequence[str]) -> None:
    """Refuses names that are no strategy, and none at all.

    Raises:
        RequestError: One is unknown.
    """
    for name in names:
        if name not in STRATEGIES:
            raise not_one_of("strategy", name, STRATEGIES, "correct --strategy")


def make_search(name: str, space: Space, seed: int) -> StateSearch:
    """A search over a space, by the name of its strategy.

    A single state leaves nothing to learn, and networks without an output: it is asked at random.
    """
    if space.size == 1:
        name = "random"
    return cast(StateSearch, resolve("strategy", name, STRATEGIES)(space, seed))
