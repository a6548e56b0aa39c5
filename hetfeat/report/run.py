"""A finished run as plain data: what every table is made of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

RESOLVED = "resolved."
"""Before what a command's options came to, among the parameters of its run."""


@dataclass(frozen=True)
class Run:
    """A run that has finished.

    Attributes:
        id: As the tracking store names it.
        command: That made it, such as `train`; of a part of a run, that of the whole.
        started: When, in UTC.
        duration_s: Wall time.
        device: The device or devices it is about, separated by commas; else the processor.
        params: By name.
        metrics: Last values by name.
        tags: By name.
        parent: Id of the run that it is a part of.
        source: Id of the run that made the cost model it began with.
    """

    id: str
    command: str
    started: datetime
    duration_s: float
    device: str
    params: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    parent: str | None = None
    source: str | None = None

    def setting(self, name: str) -> str:
        """What an option came to; empty if the run says nothing of it."""
        return self.params.get(RESOLVED + name, "")

    @property
    def seed(self) -> str:
        """The seed as text."""
        return self.setting("seed")

    @property
    def date(self) -> str:
        """Day on which it began."""
        return self.started.date().isoformat()


def latest_by_seed(runs: Iterable[Run]) -> list[Run]:
    """The newest run of each seed, in the order of seeds: a repetition replaces what it repeats."""
    newest: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: run.started):
        newest[run.seed] = run
    return [newest[seed] for seed in sorted(newest)]
