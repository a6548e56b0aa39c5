"""Figures that are logged while the work goes on that they are of."""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from hetfeat.progress import recorded_by
from registry.models.mlflow_client import in_our_words, is_foreign, patiently

if TYPE_CHECKING:
    from mlflow.entities import Metric

log = logging.getLogger(__name__)

_MOST_METRICS = 1000
"""Most metrics that MLflow takes in a request."""


@dataclass
class Curve:
    """Figures by step, logged in a few requests.

    A request an epoch would take longer than the epoch.

    Attributes:
        run_id: Id of the run that they are logged into.
        every_s: Least seconds between requests while the work goes on; 5 by default.
        points: Value of each figure by step, by the figure's name.
    """

    run_id: str
    every_s: float = 5.0
    points: dict[str, dict[int, float]] = field(default_factory=dict)
    _waiting: list["Metric"] = field(default_factory=list)
    _asked: float = field(default_factory=time.monotonic)

    @property
    def last_step(self) -> int:
        """The largest step so far; 0 where there is none."""
        return max((max(values) for values in self.points.values()), default=0)

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """Takes the figures of a step, and logs what is waiting where it is time."""
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        for name, value in figures.items():
            self.points.setdefault(name, {})[step] = value
            self._waiting.append(Metric(name, value, now_ms, step))
        if time.monotonic() - self._asked >= self.every_s:
            self.log_so_far()

    def log(self) -> None:
        """Logs every figure that waits, at its own step and time."""
        from mlflow import MlflowClient

        client = MlflowClient()
        while self._waiting:
            some = self._waiting[:_MOST_METRICS]
            patiently(partial(client.log_batch, self.run_id, metrics=some))
            del self._waiting[:_MOST_METRICS]
        self._asked = time.monotonic()

    def log_so_far(self) -> None:
        """As `log`, but a store that is lost fails no work: the figures wait."""
        try:
            self.log()
        except Exception as error:
            if not is_foreign(error):
                raise
            self._asked = time.monotonic()
            self.every_s *= 10  # each request may take a minute to fail
            log.warning("%s; they wait", in_our_words(error, "log figures meanwhile").given)


@contextlib.contextmanager
def live(run_id: str) -> Iterator[Curve]:
    """Logs into a run what `hetfeat.progress.record` is told during the block."""
    curve = Curve(run_id)
    try:
        with recorded_by(curve.add):
            yield curve
    finally:
        curve.log_so_far()
