"""Runs a search within a budget, on whatever measures."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hetfeat.errors import RequestError
from hetfeat.search.base import State, StateSearch, Timed

Measure = Callable[[Sequence[State]], Sequence[Timed]]


@dataclass
class Trial:
    """One run of a search.

    Attributes:
        bests: Fastest state so far after each evaluation; None while all have failed. Empty by
            default.
        search_s: CPU time of the search itself in seconds, which others on the machine do not
            lengthen; 0 by default.
        measuring_s: Wall time of measuring in seconds, also of states that an earlier search had
            measured; 0 by default.
    """

    bests: list[Timed | None] = field(default_factory=list)
    search_s: float = 0.0
    measuring_s: float = 0.0

    @property
    def evaluations(self) -> int:
        """States measured."""
        return len(self.bests)

    @property
    def best(self) -> Timed | None:
        """The fastest state."""
        return self.bests[-1] if self.bests else None

    @property
    def best_s(self) -> float | None:
        """Its time in seconds."""
        return self.best.seconds if self.best else None

    @property
    def curve_s(self) -> list[float | None]:
        """Best time so far after each evaluation, in seconds."""
        return [best.seconds if best else None for best in self.bests]

    def add(self, timed: Timed) -> None:
        """Takes one evaluation in."""
        faster = timed.seconds is not None and (self.best_s is None or timed.seconds < self.best_s)
        self.bests.append(timed if faster else self.best)


def run_search(
    search: StateSearch,
    measure: Measure,
    budget: int,
    enough: Callable[[Trial], bool] = lambda trial: False,
    *,
    batch: int = 8,
) -> Trial:
    """Asks, measures and tells until the budget is spent or no state is left.

    Args:
        search: Strategy that chooses the states.
        measure: Function that times states, in their order.
        budget: Most states to measure.
        enough: Function that ends the run early, asked before each batch; never by default.
        batch: States asked for at a time; 8 by default, as the network tuner does it.
    """
    trial = Trial()
    while trial.evaluations < budget and not enough(trial):
        started = time.process_time()
        states = search.ask(min(batch, budget - trial.evaluations))
        trial.search_s += time.process_time() - started
        if not states:
            break
        timed = measure(states)
        trial.measuring_s += sum(one.cost_s for one in timed)
        started = time.process_time()
        search.tell(timed)
        trial.search_s += time.process_time() - started
        for one in timed:
            trial.add(one)
    return trial


def evaluations_of(budget: str, size: int) -> int:
    """Evaluations that `--budget` means: a count, or with a point a fraction of the space.

    Raises:
        RequestError: Neither, less than one evaluation, or a fraction over 1; a larger count is the
            whole space.
    """
    try:
        value = float(budget) if "." in budget or "e" in budget else int(budget)
    except ValueError:
        value = -1
    count = round(value * size) if isinstance(value, float) and value <= 1 else value
    if isinstance(count, float) or count < 1:
        raise RequestError(
            f"--budget {budget} of a space of {size} states",
            "a count of at least 1, or a fraction over 0 and up to 1.0 that comes to 1 state",
            "choose a larger or smaller budget",
        )
    return min(count, size)
