"""Figures of a run in flight, read by another client while the work goes on."""

from functools import partial
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException

from hetfeat import progress as of_hetfeat
from hetfeat.progress import progress, record
from registry.jobs import train
from registry.models.mlflow_client import connect
from registry.tracking import command_run, live
from registry.tracking.live import Curve

pytestmark = pytest.mark.usefixtures("registry_here")


@pytest.fixture
def at_once(monkeypatch):
    """No figure waits for others."""
    monkeypatch.setattr(live, "Curve", partial(Curve, every_s=0))
    monkeypatch.setattr(train, "Curve", partial(Curve, every_s=0))


def in_flight(run_id: str, name: str) -> dict[int, float]:
    """What another client reads of a run that has not ended."""
    client = connect()
    assert client.get_run(run_id).info.status == "RUNNING"
    return {point.step: point.value for point in client.get_metric_history(run_id, name)}


def test_the_loss_of_each_epoch(at_once):
    seen = []
    with command_run.tracked_run("train", {}) as run:

        def fit(training, valid, on_epoch):
            for epoch in range(3):
                on_epoch(epoch, {"valid_loss": 1.0 / (1 + epoch)})
                seen.append(in_flight(run.info.run_id, "valid_loss"))

        model = SimpleNamespace(
            parameters={"rounds": 3}, fit=fit, learn_unapplied_traces=lambda *_: None
        )
        train._fit(run.info.run_id, model, SimpleNamespace(train=[], valid=[], test=[]))
    assert seen == [{0: 1.0}, {0: 1.0, 1: 0.5}, {0: 1.0, 1: 0.5, 2: 1 / 3}]


def test_whatever_the_work_tells_of(at_once):
    with command_run.tracked_run("deploy", {}) as run:
        record(8, {"tuning/kernels_ms": 5.0})
        record(16, {"tuning/kernels_ms": 4.0})
        assert in_flight(run.info.run_id, "tuning/kernels_ms") == {8: 5.0, 16: 4.0}
        with command_run.nested_run("trial", {}) as trial:
            record(1, {"loss": 0.5})
            assert in_flight(trial.info.run_id, "loss") == {1: 0.5}
        assert in_flight(run.info.run_id, "loss") == {}


def test_how_many_a_second(at_once, monkeypatch):
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(of_hetfeat, "time", clock)
    with command_run.tracked_run("collect", {}) as run, progress(40, "program") as at:
        for done in range(0, 40, 10):
            at(done)
            now[0] += 5.0
        rates = in_flight(run.info.run_id, "progress/programs_per_s")
    assert rates == {20: 2.0}


def test_figures_wait_for_others_and_none_is_lost(monkeypatch):
    monkeypatch.setattr(live, "Curve", partial(Curve, every_s=1000))
    with command_run.tracked_run("deploy", {}) as run:
        for step in range(1500):
            record(step, {"tuning/kernels_ms": float(step)})
        assert in_flight(run.info.run_id, "tuning/kernels_ms") == {}
    points = connect().get_metric_history(run.info.run_id, "tuning/kernels_ms")
    assert sorted(point.step for point in points) == list(range(1500))


def test_a_store_that_is_lost_meanwhile_fails_no_work(at_once, monkeypatch, caplog):
    def lost(*_, **__):
        raise MlflowException("gone")

    with command_run.tracked_run("deploy", {}) as run:
        with monkeypatch.context() as patch:
            patch.setattr("mlflow.MlflowClient.log_batch", lost)
            record(1, {"tuning/kernels_ms": 5.0})
        assert "no way to log figures meanwhile (gone); they wait" in caplog.messages
        record(2, {"tuning/kernels_ms": 4.0})
        assert len(in_flight(run.info.run_id, "tuning/kernels_ms")) == 2


def test_nothing_is_recorded_where_nobody_asks():
    record(1, {"tuning/kernels_ms": 5.0})
    curve = Curve("run")
    assert curve.last_step == 0
    curve.add(3, {"loss": 1.0})
    curve.add(2, {"pca": 1.0})
    assert (curve.last_step, curve.points) == (3, {"loss": {3: 1.0}, "pca": {2: 1.0}})
