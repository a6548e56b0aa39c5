"""How long a build may take before it is given up."""

import statistics
from collections import defaultdict, deque
from dataclasses import dataclass


@dataclass(frozen=True)
class BuildTimeoutOptions:
    """Settings of `BuildTimeout`.

    Attributes:
        longest_s: Most seconds for any build, default 8: most programs build in 0.2 s; a few,
            unrolled too far, would keep LLVM busy for a minute.
        shortest_s: Seconds that every build gets, default 3: a busy machine is slower by as much.
        medians: Multiple of the operator's median build that is allowed, default 10.
        builds_to_learn: Number of builds of an operator before its median counts, default 16.
        builds_kept: Number of an operator's latest builds that the median is of, default 64.
    """

    longest_s: float = 8.0
    shortest_s: float = 3.0
    medians: float = 10.0
    builds_to_learn: int = 16
    builds_kept: int = 64


class BuildTimeout:
    """Learns from the builds of each operator how long its next may take.

    Operators differ: a program of Winograd's F(4,3) builds in 1.2 s, a direct one in 0.25 s
    (`benchmarks/builds.py`).

    Args:
        options: Settings of the time-out.
    """

    def __init__(self, options: BuildTimeoutOptions) -> None:
        self._options = options
        self._seconds: dict[str, deque[float]] = defaultdict(
            lambda: deque(maxlen=options.builds_kept)
        )

    def learn(self, operator: str, seconds: float) -> None:
        """Takes in what a build took, given up or not."""
        self._seconds[operator].append(seconds)

    def allowed_s(self, operator: str) -> float:
        """Seconds that a build of the operator may take now."""
        options, seconds = self._options, self._seconds[operator]
        if len(seconds) < options.builds_to_learn:
            return options.longest_s
        usual_s = options.medians * statistics.median(seconds)
        return min(options.longest_s, max(options.shortest_s, usual_s))
