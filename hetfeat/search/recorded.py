"""Recorded spaces: searches replayed on exhaustive measurements, without a device."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hetfeat.dataset.importers.kernel_tuner import Recording, named
from hetfeat.search.base import State, Timed

Floats = npt.NDArray[np.float64]


class RecordedSpace:
    """The configurations of a recording; a move changes one parameter by one step of its values.

    Parameters that never vary are left out of the states.

    Args:
        recording: Measurements of a whole space.
        timings: Columns of the recorded times that count; all by default. A configuration's time
            is their median.
    """

    def __init__(self, recording: Recording, timings: slice = slice(None)) -> None:
        varied = [len(set(column)) > 1 for column in recording.configurations.T]
        if not any(varied):
            varied[0] = True  # a space of one state
        values = recording.configurations[:, varied]
        order = np.lexsort(values.T[::-1])
        self._sorted = values[order]  # by position after position: a prefix is a range of rows
        self.parameters = tuple(
            name for name, kept in zip(recording.parameters, varied, strict=True) if kept
        )
        self._levels = tuple(
            level for level, kept in zip(recording.levels, varied, strict=True) if kept
        )
        self.states: list[State] = list(map(tuple, self._sorted.tolist()))
        self.times_s = _median(recording.times_ms[order][:, timings]) / 1e3
        """Time of each state in seconds, float64 [size]; NaN for failures."""
        self._index = {state: index for index, state in enumerate(self.states)}
        self.size = len(self.states)
        self.levels = tuple(tuple(np.unique(column).tolist()) for column in self._sorted.T)
        self._step = [{value: i for i, value in enumerate(level)} for level in self.levels]
        self.actions = 2 * len(self.levels)
        self._moves: dict[State, list[tuple[int, State]]] = {}
        self._options: dict[State, tuple[Sequence[int], Sequence[int]]] = {}

    @property
    def optimum_s(self) -> float:
        """The shortest time in seconds."""
        return float(np.nanmin(self.times_s))

    def time_s(self, state: State) -> float | None:
        """A state's time in seconds, or None for a failure."""
        seconds = float(self.times_s[self._index[state]])
        return None if np.isnan(seconds) else seconds

    def values(self, state: State) -> tuple[str, ...]:
        """A state's values as JSON; a state has positions for those that are no whole numbers."""
        return named(state, self._levels)

    def measure(self, states: Sequence[State]) -> list[Timed]:
        """What was recorded of states."""
        return [Timed(state, self.time_s(state)) for state in states]

    def __contains__(self, state: State) -> bool:
        return state in self._index

    def state_at(self, index: int) -> State:
        """See `Space.state_at`."""
        return self.states[index]

    def start(self) -> State | None:
        """A recorded space has no customary start."""
        return None

    def moves(self, state: State) -> list[tuple[int, State]]:
        """See `Space.moves`; remembered, since replays of many searches ask for the same."""
        moves = self._moves.get(state)
        if moves is None:
            moves = self._moves[state] = self._find_moves(state)
        return moves

    def exchanges(self, state: State) -> list[State]:
        """A recorded space has none: its parameters have no factors in common."""
        return []

    def _find_moves(self, state: State) -> list[tuple[int, State]]:
        moves = []
        for at, (level, steps) in enumerate(zip(self.levels, self._step, strict=True)):
            here = steps[state[at]]
            for upwards, there in enumerate((here - 1, here + 1)):
                if 0 <= there < len(level):
                    moved = (*state[:at], level[there], *state[at + 1 :])
                    if moved in self._index:
                        moves.append((2 * at + upwards, moved))
        return moves

    def options(self, prefix: State) -> Sequence[int]:
        """See `Space.options`."""
        return self._split(prefix)[0]

    def _split(self, prefix: State) -> tuple[Sequence[int], Sequence[int]]:
        """Values that follow a prefix, and the rows of `_sorted` at which each begins, and ends."""
        split = self._options.get(prefix)
        if split is None:
            first, last = 0, self.size
            if prefix:
                values, bounds = self._split(prefix[:-1])
                at = list(values).index(prefix[-1])
                first, last = bounds[at], bounds[at + 1]
            column = self._sorted[first:last, len(prefix)]
            following, begins = np.unique(column, return_index=True)
            split = following.tolist(), [*(begins + first).tolist(), last]
            self._options[prefix] = split
        return split

    def vectors(self, states: Sequence[State]) -> npt.NDArray[np.float32]:
        """Position of each value among its parameter's values."""
        columns = np.array(states, np.int64).reshape(-1, len(self.levels)).T
        steps = [
            np.searchsorted(level, column) / max(len(level) - 1, 1)
            for level, column in zip(self.levels, columns, strict=True)
        ]
        return np.stack(steps, axis=1).astype(np.float32)


def _median(times: Floats) -> Floats:
    """Median of each row's known times; NaN where there are none."""
    ran = ~np.isnan(times).all(axis=1)
    median = np.full(len(times), np.nan)
    median[ran] = np.nanmedian(times[ran], axis=1)
    return median
