"""What MLflow's own pages find in the run of a deployment, for real, of one matmul."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import trained
from small_deploys import deploy_small

from registry.jobs.deploy import DeployJob, deploy_and_register
from registry.models.mlflow_client import connect

pytestmark = [pytest.mark.slow, pytest.mark.tvm]

STAGES = {"lowering", "references", "first check", "choosing", "building", "verifying", "timing"}
OF_TUNING = {
    ("choosing", "proposing"),
    ("choosing", "measuring"),
    ("measuring", "building programs"),
    ("choosing", "measuring finalists"),
}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory, trained_once, device_file):
    """The report of a deployment beside one peer, and its run."""
    folder = tmp_path_factory.mktemp("registry")
    job = DeployJob("nets:dense", Path("bundle"), str(device_file), trials=8, untuned=True)
    with (
        trained.registry_with_a_model(folder, trained_once),
        pytest.MonkeyPatch.context() as patch,
    ):
        deploy_small(patch, "registry.jobs.deploy", peers=("torch",))
        made = deploy_and_register(job)
        yield SimpleNamespace(report=made.report, run=connect().get_run(made.run_id))


def test_the_model_is_an_input_and_the_bundle_an_output(deployed):
    client, run = connect(), deployed.run
    source = client.get_model_version(trained.MODEL, "1").source
    bundle = client.get_model_version("network.nets_dense.here", "1").source
    assert [f"models:/{given.model_id}" for given in run.inputs.model_inputs] == [source]
    assert [f"models:/{made.model_id}" for made in run.outputs.model_outputs] == [bundle]


def test_a_trace_says_where_the_time_went(deployed):
    info = deployed.run.info
    (trace,) = connect().search_traces(
        locations=[info.experiment_id],
        filter_string=f"metadata.`mlflow.sourceRun` = '{info.run_id}'",
    )
    names = {span.span_id: span.name for span in trace.data.spans}
    nested = {(names.get(span.parent_id), span.name) for span in trace.data.spans}
    assert {(None, "deploy"), *(("deploy", stage) for stage in STAGES), *OF_TUNING} <= nested


def test_figures_that_came_meanwhile_and_those_that_decide(deployed):
    report, metrics = deployed.report, deployed.run.data.metrics
    faster = report.peers_ms["torch"] / report.latency_ms
    assert metrics["of_fastest_peer"] == pytest.approx(faster)
    assert metrics["decides/of_fastest_peer"] == metrics["of_fastest_peer"]
    assert metrics["untuned_ms"] == report.untuned_ms > 0
    points = connect().get_metric_history(deployed.run.info.run_id, "tuning/kernels_ms")
    assert [point.step for point in points] == [8] and points[0].value > 0


def test_figures_and_the_table_of_tasks(deployed):
    client, info = connect(), deployed.run.info
    figures = [file.path for file in client.list_artifacts(info.run_id, "figures")]
    assert figures == ["figures/latency.png", "figures/latency_over_time.png"]
    table = client.load_table(info.experiment_id, "tables/tasks.json", [info.run_id])
    (task,) = table.to_dict("records")
    assert (task["operator"], task["program"], task["share"]) == ("matmul", "measured", 1.0)
    assert 0 < task["of_roofline"] == pytest.approx(task["roofline_ms"] / task["latency_ms"])
