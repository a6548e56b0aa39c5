"""The contract of a measurer."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from hetfeat.records import Measurement, Program


class Measurer(Protocol):
    """Measures programs. A crash, a hang or a lost device costs one candidate."""

    def measure(
        self, programs: Sequence[Program], incumbent_s: Mapping[str, float] | None = None
    ) -> list[Measurement]:
        """Measurements of `programs`, in their order.

        Args:
            programs: Candidates; their tasks must be known to the measurer.
            incumbent_s: Best latency so far by task hash; a first run much slower than that is
                taken as the program's latency, without repeats.
        """
