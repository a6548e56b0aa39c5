"""What another device lets expect of a space."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetfeat.search.base import State

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Prior:
    """What another device lets expect of a space.

    Attributes:
        ranking: States of the space, the fastest first.
        log_times: Expected log times of states, up to a constant, by state.
        unknown: Log time assumed for a state of which nothing is expected.
    """

    ranking: list[State]
    log_times: dict[State, float]
    unknown: float

    def __call__(self, states: Sequence[State]) -> Floats:
        """Expected log times, float64 [states]."""
        return np.array([self.log_times.get(state, self.unknown) for state in states])
