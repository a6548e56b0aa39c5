"""What the run of a deployment shows in MLflow."""

from dataclasses import replace

import mlflow
import pytest
import stores
from deploy_reports import REPORT

from hetfeat.deploy.tuned import KERNELS_MS, TASKS, TUNING_S
from registry.models.mlflow_client import connect
from registry.models.version import Version
from registry.tracking import command_run
from registry.tracking.deployed import INTERRUPTED_TAG, log_deployment
from registry.tracking.live import Curve

pytestmark = [
    pytest.mark.usefixtures("registry_here"),
    pytest.mark.filterwarnings("error:.*select_dtypes"),
]

TASK = {
    "operator": "matmul",
    "shapes": [[8, 8], [8, 8], [8, 8]],
    "weight": 2,
    "latency_s": 1e-6,
    "trace": "[]",
}


def logged(report, tasks, points):
    with command_run.tracked_run("deploy", {}) as run:
        curve = Curve(run.info.run_id, points=points)
        log_deployment(report, {"tasks": tasks}, stores.profile("a"), curve)
    client = connect()
    files = {
        file.path
        for folder in ("figures", "tables")
        for file in client.list_artifacts(run.info.run_id, folder)
    }
    return client.get_run(run.info.run_id).data, files, run.info.run_id


def test_metrics_figures_and_a_table():
    peers_ms = {"torch": None, "onnxruntime": 2.0}
    report = replace(REPORT, latency_ms=1.6, untuned_ms=9.0, peers_ms=peers_ms)
    points = {TASKS: {8: 1}, TUNING_S: {8: 2.0}, KERNELS_MS: {8: 1.5}}
    data, files, run_id = logged(report, [TASK], points)
    expected = {
        "latency_ms": 1.6,
        "of_fastest_peer": 1.25,
        "untuned_ms": 9.0,
        "onnxruntime_ms": 2.0,
    }
    expected |= {"decides/latency_ms": 1.6, "decides/of_fastest_peer": 1.25}
    assert expected.items() <= data.metrics.items()
    assert "torch_ms" not in data.metrics and INTERRUPTED_TAG not in data.tags
    assert files == {
        "figures/latency.png",
        "figures/latency_over_time.png",
        "tables/tasks.json",
    }
    table = mlflow.load_table("tables/tasks.json", run_ids=[run_id])
    assert table["operator"].tolist() == ["matmul"] and table["share"].tolist() == [1.0]


def test_what_there_is_not_is_left_out():
    data, files, _ = logged(replace(REPORT, interrupted=True), [], {})
    assert files == {"figures/latency.png"}
    assert "of_fastest_peer" not in data.metrics and data.tags[INTERRUPTED_TAG] == "true"


def test_the_source_model_is_an_input_of_the_run():
    client = connect()
    with command_run.tracked_run("deploy", {}) as run:
        source = client.create_logged_model(run.info.experiment_id, name="cost_model")
        for uri in (f"models:/{source.model_id}", "runs:/a/model"):
            command_run.log_source_model(Version("costmodel.cpu", 1, None, uri, "none"))
    (given,) = client.get_run(run.info.run_id).inputs.model_inputs
    assert given.model_id == source.model_id
