"""How long a build may take before it is given up."""

import statistics
from collections import defaultdict, deque

BUILD_TIMEOUT_S = 8.0
TIMEOUT_FLOOR_S = 3.0
TIMEOUT_MEDIANS = 10.0
BUILDS_TO_LEARN = 16
"""Most programs build in 0.2 s; a few, unrolled too far, would keep LLVM busy for a minute. Once
some builds of an operator are known, one may take ten times their median, 3 s at least."""
_BUILDS_KEPT = 64


class Patience:
    """Learns from the builds of each operator how long its next may take.

    Operators differ: a program of Winograd's F(4,3) builds in 1.2 s, a direct one in 0.25 s
    (`benchmarks/builds.py`).

    Args:
        longest_s: Most that any build may take, and all until some of its operator are known.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._seconds: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_BUILDS_KEPT))

    def learn(self, operator: str, seconds: float) -> None:
        """Takes in what a build took, given up or not."""
        self._seconds[operator].append(seconds)

    def allowed_s(self, operator: str) -> float:
        """Seconds that a build of the operator may take now."""
        known = list(self._seconds[operator])
        if len(known) < BUILDS_TO_LEARN:
            return self._longest_s
        usual_s = TIMEOUT_MEDIANS * statistics.median(known)
        return min(self._longest_s, max(TIMEOUT_FLOOR_S, usual_s))
