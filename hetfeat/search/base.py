"""The contract of a search, and what a search draws candidates from."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hetfeat.records import Measurement, Program, Task

Score = Callable[[Sequence[Program]], npt.NDArray[np.floating[Any]]]
"""Scores of programs with features, float [n]; higher is faster."""


class Proposer(Protocol):
    """Draws programs, with features, from a task's design space."""

    def sample(self, task: Task, count: int, seed: int) -> list[Program]:
        """Up to `count` distinct random programs."""

    def vary(self, task: Task, parents: list[str], count: int, seed: int) -> list[Program]:
        """Up to `count` distinct programs a few changes away from the traces `parents`."""


class Search(Protocol):
    """Chooses what to measure; knows nothing of how it is measured."""

    def ask(self, count: int) -> list[Program]:
        """Up to `count` candidates not asked before; empty when there are no more."""

    def tell(self, measurements: Sequence[Measurement]) -> None:
        """What became of candidates, in any order, not only of those asked for."""
