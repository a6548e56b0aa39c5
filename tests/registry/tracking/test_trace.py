"""Where the time of a deployment goes, as MLflow shows it."""

import logging

import mlflow
import pytest
from mlflow.tracing.trace_manager import InMemoryTraceManager

from hetfeat.progress import stage
from registry.models.mlflow_client import connect
from registry.tracking import command_run
from registry.tracking.trace import traced

pytestmark = pytest.mark.usefixtures("registry_here")


def traces_of(run) -> list:
    return connect().search_traces(
        locations=[run.info.experiment_id],
        filter_string=f"metadata.`mlflow.sourceRun` = '{run.info.run_id}'",
    )


def test_stages_are_spans_of_a_trace_of_the_run():
    with command_run.tracked_run("deploy", {}) as run, traced("deploy"):
        with stage("lowering"):
            pass
        with stage("choosing"), stage("measuring"), stage("building programs"):
            pass
    (trace,) = traces_of(run)
    names = {span.span_id: span.name for span in trace.data.spans}
    assert {(span.name, names.get(span.parent_id)) for span in trace.data.spans} == {
        ("deploy", None),
        ("lowering", "deploy"),
        ("choosing", "deploy"),
        ("measuring", "choosing"),
        ("building programs", "measuring"),
    }


def test_a_stage_that_fails_is_told_and_its_error_goes_on():
    with pytest.raises(ValueError, match="wrong"):  # noqa: SIM117
        with command_run.tracked_run("deploy", {}) as run, traced("deploy"), stage("verifying"):
            raise ValueError("wrong")
    (trace,) = traces_of(run)
    assert {span.name: span.status.status_code for span in trace.data.spans}["verifying"] == "ERROR"


def test_the_trace_of_a_day_is_not_forgotten():
    InMemoryTraceManager.reset()
    with command_run.tracked_run("deploy", {}) as run, traced("deploy"):
        running = InMemoryTraceManager.get_instance()._traces
        running.expire(running.timer() + 86_400)
    assert len(traces_of(run)) == 1


def test_stages_cost_nothing_where_nobody_asks():
    with stage("lowering"):
        assert mlflow.get_current_active_span() is None


def test_a_store_that_takes_no_traces_fails_no_work(monkeypatch, caplog):
    def lost(*_, **__):
        raise OSError("gone")

    monkeypatch.setattr("mlflow.tracing.client.TracingClient.start_trace", lost)
    caplog.set_level(logging.ERROR)
    with command_run.tracked_run("deploy", {}) as run, traced("deploy"), stage("lowering"):
        pass
    assert connect().get_run(run.info.run_id).info.status == "FINISHED"
