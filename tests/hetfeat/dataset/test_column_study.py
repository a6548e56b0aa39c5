"""The exploratory study: a table that can be counted by hand, and features known to matter."""

import json

import numpy as np
import pytest
import stores

import mlproject
from hetfeat.dataset.column_study import operators_by_device
from hetfeat.dataset.store import RecordStore
from hetfeat.features.assemble import assemble
from hetfeat.features.columns import STORE
from hetfeat.models.gbdt import XgbModel
from hetfeat.models.importance import importances
from hetfeat.records import Measurement, Program, Task
from registry.cli import app


def test_operators_by_device(tmp_path):
    store = RecordStore.create(tmp_path / "s")
    small = Task("0" * 16, "matmul", ((2, 3), (3, 4), (2, 4)), "float32", 48.0)
    large = Task("1" * 16, "matmul", ((8, 8), (8, 8), (8, 16)), "float32", 2e9)

    def measured(task, name, latencies, error=None):
        return Measurement(Program(task, name), "d", latencies, error, 1.0, "tvm")

    store.append(
        [
            measured(small, "[1]", (0.001, 0.003, 0.9)),
            measured(small, "[2]", (), "build"),
            measured(large, "[3]", (0.005,)),
            measured(Task("2" * 16, "softmax", (), "float32", 0.0), "[4]", (), "build"),
        ]
    )
    store.compact()
    matmul, softmax = operators_by_device(store)
    assert matmul == {
        "operator": "matmul",
        "device": "d",
        "kernel_shapes": 2,
        "max_gflop": 2.0,
        "tensor_shape": [8, 16],
        "mean_ms": pytest.approx(4.0),
        "records": 3,
        "failed": 1,
    }
    assert (softmax["tensor_shape"], softmax["failed"]) == ([], 1)
    assert np.isnan(softmax["mean_ms"])


@pytest.fixture(scope="module")
def large_store(tmp_path_factory) -> RecordStore:
    return stores.make_store(tmp_path_factory.mktemp("study") / "s", tasks=6, per_task=60)


def test_the_columns_that_set_the_latency_come_first(large_store):
    examples = assemble(large_store).examples
    rows = np.arange(len(examples))
    train, test = examples.take(rows[rows % 4 > 0]), examples.take(rows[rows % 4 == 0])
    model = XgbModel.for_effort("quick", 0)
    model.fit(train, test)
    found = importances(model, train, test)
    causes = {STORE[i].name for i in stores.LEARNABLE}
    assert {row.column.partition(".")[2] for row in found[:4]} <= causes
    assert sum(row.gain for row in found) == pytest.approx(1)
    assert found[0].permutation > 0.05
    by_name = {row.column: row for row in found}
    constant = by_name["hardware.cache_line_bytes"]
    assert (constant.gain, constant.permutation) == (0, 0)
    assert (constant.label_information, constant.latency_information) == (0, 0)
    # Devices differ in threads, which halve the latency and order no two programs of a task.
    threads = by_name["hardware.threads"]
    assert threads.latency_information > threads.label_information


@pytest.mark.slow
def test_the_command_logs_a_run(large_store, registry_here, capfd):
    line = f"records study {large_store.path} --json"
    assert app.run(mlproject.cli, line.split()) == 0
    value = json.loads(capfd.readouterr().out)
    import mlflow

    run = mlflow.get_run(value["run_id"])
    assert run.data.params["resolved.tasks"] == "6"
    client = mlflow.MlflowClient()
    for folder, names in (
        ("study", ["importance.json", "operators.json"]),
        ("figures", ["hardware_and_flops.png", "importance.png"]),
    ):
        found = client.list_artifacts(value["run_id"], folder)
        assert [artifact.path for artifact in found] == [f"{folder}/{name}" for name in names]
    assert {row["operator"] for row in value["operators"]} == {"conv2d", "matmul", "softmax"}
    assert "task.flops" in {row["column"] for row in value["hardware_and_flops"]}
