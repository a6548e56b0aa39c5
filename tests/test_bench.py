"""How engines are timed: a slow one once, one that does not run not at all."""

import time

import pytest

from hetfeat.deploy import engines
from hetfeat.deploy.bench import compare
from hetfeat.errors import WorkFailed

RUN_S = 0.02


@pytest.fixture
def service(monkeypatch):
    """An engine that takes `RUN_S`, and how often it ran."""
    runs = []

    def run():
        runs.append(None)
        time.sleep(RUN_S)

    monkeypatch.setitem(engines.ENGINES, "sleeper", lambda settings: run)
    return engines.Service({"engine": "sleeper"}), runs


def test_an_engine_is_warmed_up_and_timed_for_a_while(service):
    engine, runs = service
    engine.hello()
    assert len(runs) == 2
    latencies = engine.time(3.5 * RUN_S)
    assert len(latencies) == len(runs) - 2 <= 4
    assert min(latencies) >= RUN_S


def test_a_slow_one_runs_once_whatever_is_asked(service, monkeypatch):
    monkeypatch.setattr(engines, "SLOW_S", RUN_S)
    engine, runs = service
    engine.hello()
    assert engine.time(1.0) == engine.time(1.0)
    assert len(runs) == 1


def test_an_engine_that_does_not_run_is_refused_where_it_is_needed(tmp_path):
    missing = {"untuned": {"engine": "bundle", "bundle": str(tmp_path)}}
    assert compare(missing, 1, 1, first_needed=False) == {"untuned": None}
    with pytest.raises(WorkFailed, match="untuned, which does not run"):
        compare(missing, 1, 1)
