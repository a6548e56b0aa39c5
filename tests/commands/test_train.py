"""`hetfeat train` from records to a version that MLflow loads, in a folder of its own."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import stores

import mlproject
from hetfeat.dataset import sidecar_files
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.families import common_family
from hetfeat.errors import DataError, RequestError
from hetfeat.records import Measurement, Program
from registry.cli import app
from registry.jobs.train import TrainingRequest, evaluation_digest, load_data
from registry.tracking.cost_model_flavor import input_example


def client_in(folder: Path):
    from registry.models.mlflow_client import connect

    return connect(f"sqlite:///{folder / 'mlflow.db'}")


def environment(project: Path, **variables: str) -> dict[str, str]:
    """This process's variables, less any that lead to another registry or run."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    return {**kept, "PYTHONPATH": str(project), **variables}


def hetfeat(project: Path, folder: Path, *arguments: str, **variables: str):
    return subprocess.run(
        [sys.executable, "-m", "mlproject", *arguments],
        cwd=folder,
        env=environment(project, **variables),
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, project: Path) -> SimpleNamespace:
    """One training inside a run that already has parameters, as `mlflow run` leaves it."""
    folder = tmp_path_factory.mktemp("train here")
    store = stores.make_store(folder / "records")
    client = client_in(folder)
    experiment = client.create_experiment(
        "made by mlflow run", artifact_location=str(folder / "mlruns")
    )
    run = client.create_run(experiment)
    for key, value in {"records": "records", "seed": "3", "split": "by_task"}.items():
        client.log_param(run.info.run_id, key, value)
    done = hetfeat(
        project,
        folder,
        *("train", "--records", "records", "--seed", "3", "--effort", "quick", "--json"),
        *("--holdout", "", "--family", "", "--pruned", "false"),
        MLFLOW_RUN_ID=run.info.run_id,
    )
    assert done.returncode == 0, done.stderr
    return SimpleNamespace(
        folder=folder,
        store=store,
        client=client,
        result=json.loads(done.stdout),
        stderr=done.stderr,
        run=client.get_run(run.info.run_id),
    )


def test_prints_the_promised_keys(trained):
    result = trained.result
    assert result["model"] == "costmodel.cpu-x86"
    assert result["version"] == 1
    assert result["run_id"] == trained.run.info.run_id
    assert set(result["metrics"]) == {"pca", "rmse", "r2", "top1", "top5"}
    assert all(math.isfinite(value) for value in result["metrics"].values())
    assert result["train_s"] > 0
    assert result["dataset_digest"] == trained.store.digest()
    assert result["train_records"] + result["valid_records"] + result["test_records"] == 216


def test_says_what_it_does_without_mlflows_noise(trained):
    assert "training on" in trained.stderr
    assert "INFO mlflow" not in trained.stderr
    assert "Warning" not in trained.stderr


def test_the_run_keeps_its_own_parameters_and_gets_the_resolved(trained):
    parameters = trained.run.data.params
    assert parameters["records"] == "records"
    assert parameters["resolved.family"] == "cpu-x86"
    assert parameters["resolved.devices"] == "a,b"
    assert not any(name.startswith("model.") for name in parameters), "all are the effort's own"
    file = trained.client.download_artifacts(trained.result["run_id"], "model_parameters.json")
    assert json.loads(Path(file).read_text())["rounds"] == 150


def test_the_learning_curve_has_a_point_a_round(trained):
    points = trained.client.get_metric_history(trained.result["run_id"], "valid_loss")
    steps = [point.step for point in points]
    assert sorted(steps) == list(range(len(steps)))
    assert len(steps) > 10


def test_final_metrics_reach_the_run_and_the_logged_model(trained):
    version = trained.client.get_model_version(trained.result["model"], "1")
    (made,) = trained.run.outputs.model_outputs
    assert version.source == f"models:/{made.model_id}"
    logged = trained.client.get_logged_model(made.model_id)
    of_model = {metric.key: metric.value for metric in logged.metrics}
    for name, value in trained.result["metrics"].items():
        assert trained.run.data.metrics[name] == value
        assert of_model[name] == value
    for name in ("pca", "rmse", "top1"):
        assert trained.run.data.metrics[f"decides/{name}"] == trained.result["metrics"][name]


def test_what_chance_reaches_is_in_a_table_and_no_metric(trained):
    file = trained.client.download_artifacts(trained.result["run_id"], "tables/baselines.json")
    table = json.loads(Path(file).read_text())
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [row["model"] for row in rows] == ["xgb", *trained.result["baselines"]]
    assert rows[0]["pca"] == pytest.approx(trained.result["metrics"]["pca"])
    assert next(row["pca"] for row in rows if row["model"] == "constant") == 0.5
    assert not any(name.startswith("constant.") for name in trained.run.data.metrics)


def test_final_metrics_draw_no_line_and_the_model_is_that_of_the_last_epoch(trained):
    """MLflow draws bars of what is at step 0, and links what a run logged at the model's step."""
    curve = trained.client.get_metric_history(trained.result["run_id"], "valid_loss")
    last = max(curve, key=lambda point: point.step)
    (made,) = trained.run.outputs.model_outputs
    assert made.step == last.step > 0
    linked = trained.client.get_logged_model(made.model_id).metrics
    at = {(metric.key, metric.step) for metric in linked if not metric.key.startswith("system/")}
    assert {(name, 0) for name in (*trained.result["metrics"], "train_s")} < at
    assert {name for name, step in at if step} == {"valid_loss", "valid_pca", "valid_rmse"}
    assert {step for _, step in at} == {0, last.step}
    assert {metric.value for metric in linked if metric.key == "valid_loss"} == {last.value}
    (judged,) = [metric for metric in linked if metric.key == "pca"]
    assert trained.store.digest().startswith(judged.dataset_digest)


def test_the_run_says_what_it_took(trained):
    """However short: MLflow's own samples begin after a while."""
    took = trained.run.data.metrics
    assert 0 < took["system.cpu_s"] < 300
    assert 50 < took["system.peak_memory_mb"] < 20_000


def test_the_data_set_is_an_input_of_the_run(trained):
    (given,) = trained.run.inputs.dataset_inputs
    assert trained.store.digest().startswith(given.dataset.digest)
    assert {tag.key: tag.value for tag in given.tags}["digest"] == trained.store.digest()


def test_the_run_says_what_and_where(trained):
    tags = trained.run.data.tags
    assert (tags["family"], tags["devices"], tags["split"]) == ("cpu-x86", "a,b", "by_task")
    assert {"system.cpu", "system.threads", "version.xgboost", "feature_version"} <= set(tags)


def test_figures_are_pictures(trained):
    run_id = trained.result["run_id"]
    found = trained.client.list_artifacts(run_id, "figures")
    assert {Path(file.path).stem for file in found} == {
        "learning_curve",
        "predicted_against_measured",
        "error_by_operator",
        "importance",
    }
    assert all(file.file_size > 1000 for file in found)


def test_the_version_can_be_told_from_others(trained):
    tags = trained.client.get_model_version(trained.result["model"], "1").tags
    assert tags["dataset_digest"] == trained.store.digest()
    assert float(tags["metric.pca"]) == trained.result["metrics"]["pca"]
    assert len(tags["manifest_sha256"]) == 64
    assert len(tags["evaluation_digest"]) == 64


LOAD = """
import json, sys
from pathlib import Path
import mlflow.pyfunc
from hetfeat.dataset.store import RecordStore
from registry.tracking.cost_model_flavor import input_example
model = mlflow.pyfunc.load_model("models:/costmodel.cpu-x86@staging")
frame = input_example(RecordStore.open(Path("records")))
names = [column.name for column in model.metadata.signature.inputs.inputs]
assert names == list(frame.columns), names
print(json.dumps(model.predict(frame).to_dict("list")))
"""


@pytest.mark.slow
def test_a_fresh_process_loads_and_uses_it_with_pickles_forbidden(trained, project):
    trained.client.set_registered_model_alias("costmodel.cpu-x86", "staging", "1")
    done = subprocess.run(
        [sys.executable, "-c", LOAD],
        cwd=trained.folder,
        env=environment(project, MLFLOW_ALLOW_PICKLE_DESERIALIZATION="false"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    predicted = json.loads(done.stdout)
    assert len(predicted["score"]) == len(predicted["y"]) == 2
    assert min(predicted["score"]) > 0
    assert np.isfinite(predicted["y"]).all()


def test_no_pickle_is_among_the_artifacts(trained):
    from registry.files.pickle_check import looks_like_pickle

    files = [path for path in trained.folder.rglob("*") if path.is_file()]
    assert any(path.name == "booster.ubj" for path in files)
    assert [path for path in files if looks_like_pickle(path)] == []


def newer(store: RecordStore) -> None:
    (store.path / "store.json").write_text('{"schema_version": 999}')


def truncated(store: RecordStore) -> None:
    shard = store.path / store.shards()[0]["path"]
    shard.write_bytes(shard.read_bytes()[:-100])


def gone(store: RecordStore) -> None:
    (store.path / "store.json").unlink()


def train(capsys, *arguments: str) -> tuple[int, Any]:
    code = app.run(mlproject.cli, ["train", *arguments])
    return code, capsys.readouterr()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_hyperparameters_that_are_set_are_trained_with_and_logged(registry_here, capsys):
    stores.make_store(registry_here / "records", tasks=6)
    asked = ("--records", "records", "--effort", "quick", "--json")
    code, printed = train(capsys, *asked, "--set", "max_depth=3,rounds=150,stores=sum")
    assert code == 0, printed.err
    client = client_in(registry_here)
    params = client.get_run(json.loads(printed.out)["run_id"]).data.params
    assert params["resolved.set"] == "max_depth=3,stores=sum", "150 are the effort's own"
    own = {name: value for name, value in params.items() if name.startswith("model.")}
    assert own == {"model.max_depth": "3", "model.stores": "sum"}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [(newer, "schema 999"), (truncated, "cannot be read"), (gone, "store.json")],
)
def test_bad_stores_are_one_line_and_leave_nothing(here, capsys, spoil, said):
    spoil(stores.make_store(here / "records", tasks=3, per_task=3))
    code, printed = train(capsys, "--records", "records")
    (line,) = [text for text in printed.err.splitlines() if text.startswith("hetfeat: ")]
    assert code == 2
    assert said in line
    assert printed.out == ""
    assert [path.name for path in here.iterdir()] == ["records"]


def test_by_task_tests_on_the_evaluation_tasks_of_a_store_that_has_some(tmp_path):
    store = stores.make_store(tmp_path / "records")
    dense = [stores.task(2).hash, stores.task(5).hash]
    sidecar_files.save_evaluation_tasks(store.path, dense)
    data = load_data(TrainingRequest(store.path, None, "xgb", "by_task", (), "quick", 0))
    assert set(data.test.task.tolist()) == set(dense)
    assert not set(data.train.task.tolist()) & set(dense)


def test_evaluation_tasks_of_devices_left_out_hold_nothing_out(tmp_path):
    store = stores.make_store(tmp_path / "records")
    sidecar_files.save_evaluation_tasks(store.path, ["f" * 16])
    data = load_data(TrainingRequest(store.path, None, "xgb", "by_task", (), "quick", 0))
    assert len(data.test) and len(data.train)


def test_kernels_with_parameters_are_left_out(tmp_path):
    store = stores.make_traced_store(tmp_path / "records", tasks=6, per_task=12)
    parameters = Program(stores.task(7), '{"MWG": 64}')
    store.append([Measurement(parameters, "a", (1e-3,), None, 1.0, "kernel tuner")])
    data = load_data(TrainingRequest(store.path, None, "xgb", "by_task", (), "quick", 0))
    sides = (data.train, data.valid, data.test)
    assert {task for side in sides for task in side.task} == {stores.task(i).hash for i in range(6)}

    alone = RecordStore.create(tmp_path / "alone")
    alone.add_device(stores.profile("a"))
    alone.append([Measurement(parameters, "a", (1e-3,), None, 1.0, "kernel tuner")])
    with pytest.raises(DataError, match="without records"):
        load_data(TrainingRequest(alone.path, None, "xgb", "by_task", (), "quick", 0))
    schedule = Program(stores.task(0), "[[],[]]")
    alone.append([Measurement(schedule, "a", (1e-3,), None, 1.0, "tvm")])
    assert input_example(alone)["trace"].tolist() == ["[[],[]]"]


def test_an_empty_store_is_refused(here, capsys):
    RecordStore.create(here / "records")
    code, printed = train(capsys, "--records", "records")
    assert code == 2
    assert "without records" in printed.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "oracle"), "one of xgb"),
        (("--split", "by_time"), "one of within_task"),
        (("--family", "tpu"), "cpu-x86"),
        (("--family", "gpu"), "of which there are no records"),
        (("--split", "by_target"), "devices of the records (a, b)"),
        (("--split", "by_target", "--holdout", "a,z"), "--holdout a,z"),
        (("--holdout", "z"), "networks of the record store (small_net)"),
        (("--effort", "heroic"), "heroic"),
        (("--set", "max_dept=3"), "did you mean 'max_depth'?"),
        (("--set", "max_depth=deep"), "--set max_depth=deep; expected a whole number"),
        (("--model", "attention", "--set", "width=9"), "an even width that the heads divide"),
    ],
)
def test_wrong_requests_are_one_line_and_leave_nothing(here, capsys, arguments, said):
    stores.make_store(here / "records", tasks=4, per_task=4)
    code, printed = train(capsys, "--records", "records", *arguments)
    assert code == 2
    assert said in printed.err.splitlines()[-1]
    assert [path.name for path in here.iterdir()] == ["records"]


def test_two_families_need_a_choice_or_their_union():
    cpus = {"a": stores.profile("a"), "b": stores.profile("b", "cpu-arm")}
    assert common_family(cpus) == "cpu"
    with pytest.raises(RequestError, match="--family"):
        common_family({**cpus, "g": stores.profile("g", "gpu-nvidia")})


@pytest.mark.parametrize("split", ["by_task", "within_task"])
def test_pruning_touches_the_training_side_alone(tmp_path, split):
    records = stores.make_store(tmp_path / "records").path
    request = TrainingRequest(records, None, "xgb", split, (), "quick", 0)
    whole, pruned = (
        load_data(dataclasses.replace(request, pruned=choice)) for choice in (False, True)
    )
    assert len(pruned.train) == round(0.55 * len(whole.train))
    assert set(pruned.train.program.tolist()) < set(whole.train.program.tolist())
    assert evaluation_digest(pruned.test) == evaluation_digest(whole.test)
    assert evaluation_digest(pruned.valid) == evaluation_digest(whole.valid)
    assert evaluation_digest(pruned.whole) == evaluation_digest(whole.train)
