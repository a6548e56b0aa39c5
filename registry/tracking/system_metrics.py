"""What the machine does while a run lasts, as MLflow's own system metrics."""

import contextlib
import logging
from collections.abc import Iterator

import psutil
from mlflow.environment_variables import (
    MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING as WANTED,
)
from mlflow.environment_variables import (
    MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL as INTERVAL,
)
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

log = logging.getLogger(__name__)


@contextlib.contextmanager
def monitored(run_id: str, resumed: bool) -> Iterator[None]:
    """Logs processor, memory, disk and network of this machine into a run during the block.

    MLflow's variables hold: MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING=false logs nothing, an interval
    that is set is kept to. A machine that cannot be sampled fails no run.

    Args:
        run_id: Id of a run that has not ended.
        resumed: Whether the run may have samples already, which are gone on from.
    """
    if WANTED.is_set() and not WANTED.get():
        yield
        return
    try:
        monitor = Monitor(run_id, resumed)
    except Exception as error:
        log.warning("no system metrics: %s: %s", type(error).__name__, error)
        yield
        return
    monitor.start()
    try:
        yield
    finally:
        monitor.finish()


class Monitor(SystemMetricsMonitor):
    """Samples ever more rarely: a run of seconds has some, one of days not too many.

    Args:
        run_id: Id of the run.
        resumed: Whether the run may have samples already, as in `monitored`; default False.
        first_s: Seconds between the first two samples, default 0.5.
        longest_s: Most seconds between two samples, default 60.
        growth: Factor from each of these times to the next, default 1.2.
    """

    def __init__(
        self,
        run_id: str,
        resumed: bool = False,
        *,
        first_s: float = 0.5,
        longest_s: float = 60.0,
        growth: float = 1.2,
    ) -> None:
        super().__init__(run_id, sampling_interval=first_s, resume_logging=resumed)
        self._longest_s, self._growth = longest_s, growth

    def monitor(self) -> None:
        """What the thread does."""
        psutil.cpu_percent()  # the first answer that a thread gets is always 0
        self._shutdown_event.wait(self.sampling_interval)
        super().monitor()

    def publish_metrics(self, metrics: dict[str, float]) -> None:
        """Logs a sample."""
        super().publish_metrics(metrics)
        if not INTERVAL.is_set():
            self.sampling_interval = min(self.sampling_interval * self._growth, self._longest_s)
