"""A finished run as plain data: what every table is made of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

RESOLVED = "resolved."
"""Text before an option's name, among the parameters of a run: the value is what the option came
to."""


@dataclass(frozen=True)
class Run:
    """A run that has finished.

    Attributes:
        id: Id of the run in the tracking store.
        command: Name of the command that made it, such as `train`; of a part of a run, that of the
            whole.
        started: Time when it started, in UTC.
        duration_s: Wall time in seconds.
        device: The device or devices it is about, separated by commas; else the processor.
        params: Parameters by name, default none.
        metrics: Last values of metrics by name, default none.
        tags: Tags by name, default none.
        parent: Id of the run that it is a part of, default None.
        source: Id of the run that made the cost model it began with, default None.
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
