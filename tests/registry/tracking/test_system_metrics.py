"""Samples of the machine that a run has beside its own figures."""

import threading
import time
from collections.abc import Callable
from itertools import accumulate

import mlflow
import pytest

from registry.models.mlflow_client import connect
from registry.tracking import command_run
from registry.tracking.system_metrics import INTERVAL, WANTED, Monitor

PROCESSOR = "system/cpu_utilization_percentage"


@pytest.fixture(autouse=True)
def published(registry_here, monkeypatch) -> list[dict[str, float]]:
    """Every sample of the test, so that a run lasts as long as its samples need, however slow."""
    made, publish = [], Monitor.publish_metrics

    def counted(monitor, metrics):
        publish(monitor, metrics)
        made.append(metrics)

    monkeypatch.setattr(Monitor, "publish_metrics", counted)
    return made


def busy(until: Callable[[], bool], run_id: str | None = None) -> str:
    """A run that computes for a while; returns its id."""
    with command_run.tracked_run("train busily", {}, run_id) as run:
        end = time.monotonic() + 60
        while not until() and time.monotonic() < end:
            pass
    return str(run.info.run_id)


def samples(run_id: str) -> list:
    return connect().get_metric_history(run_id, PROCESSOR)


def test_a_run_has_samples_of_what_the_machine_did(published):
    run_id = busy(lambda: len(published) >= 2)
    values = [sample.value for sample in samples(run_id)]
    assert len(values) == len(published) >= 2
    assert min(values) > 0, "a thread's first reading is 0, and no sample"
    figures = connect().get_run(run_id).data.metrics
    assert figures["system/system_memory_usage_megabytes"] > 0


def test_mlflows_variables_are_heeded(published, monkeypatch):
    monkeypatch.setenv(INTERVAL.name, "0.01")
    monkeypatch.setenv(WANTED.name, "false")
    seconds = time.monotonic() + 0.5
    assert samples(busy(lambda: time.monotonic() > seconds)) == [] == published
    monkeypatch.setenv(WANTED.name, "true")
    run_id = busy(lambda: len(published) >= 5)
    steps = [sample.step for sample in samples(run_id)]
    assert sorted(steps) == list(range(len(published))), "sampled once, not by MLflow, too"


def test_a_run_that_goes_on_goes_on_with_its_samples(published, monkeypatch):
    monkeypatch.setenv(INTERVAL.name, "0.01")
    run_id = busy(lambda: len(published) >= 3)
    before = len(published)
    busy(lambda: len(published) >= before + 3, run_id)
    steps = [sample.step for sample in samples(run_id)]
    assert sorted(steps) == list(range(len(published)))


def test_samples_become_rare_unless_the_user_set_the_interval(monkeypatch):
    def waits_s(count: int) -> list[float]:
        with mlflow.start_run() as run:
            monitor = Monitor(run.info.run_id, longest_s=60.0)
            found = []
            for _ in range(count):
                found.append(monitor.sampling_interval)
                monitor.publish_metrics({})
        return found

    waits = waits_s(1500)
    assert waits == sorted(waits) and waits[-1] == 60.0
    of_seconds = sum(at < 5 for at in accumulate(waits))
    assert of_seconds >= 5
    assert sum(waits) > 24 * 3600, "a day has fewer than this"
    monkeypatch.setenv(INTERVAL.name, "7")
    assert set(waits_s(3)) == {7.0}


def test_a_machine_that_cannot_be_sampled_fails_no_run(monkeypatch, caplog):
    monkeypatch.setattr("psutil.net_io_counters", lambda: None)  # as without /proc/net
    run = connect().get_run(busy(lambda: True))
    assert run.info.status == "FINISHED"
    assert "no system metrics" in caplog.text
    assert not any(name.startswith("system/") for name in run.data.metrics)


def test_the_sampling_ends_with_the_run(monkeypatch):
    monkeypatch.setenv(INTERVAL.name, "0.05")
    with pytest.raises(RuntimeError), command_run.tracked_run("train badly", {}) as run:
        raise RuntimeError
    assert connect().get_run(run.info.run_id).info.status == "FAILED"
    assert "SystemMetricsMonitor" not in {thread.name for thread in threading.enumerate()}
