"""Each kind of cost model from records to the registry and back."""

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import adapting
import ansor_lines
import mlflow
import numpy as np
import pytest
import stores

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.store import RecordStore
from hetfeat.models.registry import MODELS
from registry.jobs.transfer import Transfer, transfer_and_register
from registry.models.mlflow_client import connect
from registry.tracking.cost_model_flavor import input_example

pytestmark = pytest.mark.slow

COMMON = ("--records", "records", "--effort", "quick")
LOAD = """
import json, sys
from pathlib import Path
import mlflow.pyfunc
from hetfeat.dataset.store import RecordStore
from registry.tracking.cost_model_flavor import input_example
model = mlflow.pyfunc.load_model(sys.argv[1])
frame = input_example(RecordStore.open(Path("records")))
print(json.dumps(model.predict(frame).to_dict("list")))
"""


@pytest.fixture
def here(registry_here: Path) -> Path:
    stores.make_store(registry_here / "records", tasks=6)
    return registry_here


def train(capfd, model: str, *arguments: str) -> dict[str, Any]:
    return adapting.succeed(capfd, "train", "--model", model, *COMMON, *arguments)


def test_records_without_features_of_stores_are_enough(registry_here, capfd):
    """Those of the auto-scheduler have none."""
    (registry_here / "log").write_bytes(b"\n".join(ansor_lines.log(400, 1, ansor_lines.on_gpu)))
    imported = ("--format", "ansor", "--device", "gpu")
    adapting.succeed(capfd, "import", "log", *imported, "--out", "records")
    made = train(capfd, "xgb", "--split", "within_task")
    uri = f"models:/{made['model']}/{made['version']}"
    frame = input_example(RecordStore.open(registry_here / "records"))
    assert len(mlflow.pyfunc.load_model(uri).predict(frame)) == len(frame)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "xgb"])
def test_from_records_to_the_registry_and_back(here, capfd, child_environment, name):
    few = ("--set", "rounds=12") if name == "attention" else ()  # its rounds are the longest
    made = train(capfd, name, "--split", "by_target", "--holdout", "b", *few)
    uri = f"models:/{made['model']}/{made['version']}"
    client = connect()
    run = client.get_run(made["run_id"])
    wanted = {"family": "cpu-x86", "devices": "a,b", "split": "by_target", "model": name}
    assert wanted.items() <= run.data.tags.items()
    assert {"feature_version", "git_commit"} <= set(run.data.tags)
    assert run.data.params["resolved.seed"] == "0"
    curve = client.get_metric_history(made["run_id"], "valid_pca")
    assert [point.step for point in curve] == list(range(len(curve)))
    assert len(curve) >= 10

    done = subprocess.run(
        [sys.executable, "-c", LOAD, uri],
        cwd=here,
        env={**child_environment, "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert np.isfinite(json.loads(done.stdout)["score"]).all()

    judged = adapting.succeed(
        capfd, "evaluate", "--model", uri, "--records", "records", "--device", "b"
    )
    assert judged["seen_records"] == 0
    assert judged["metrics"]["pca"] == pytest.approx(made["metrics"]["pca"], abs=1e-3)

    moved = transfer_and_register(
        Transfer(
            source=uri,
            device="b",
            records=Path("records"),
            source_records=None,
            network=(),
            budget_per_task=4,
            flops_share=1.0,
            fine_tune_columns=0,
            out=None,
            seed=0,
            effort="quick",
        )
    )
    assert moved["pca_source"] == pytest.approx(made["metrics"]["pca"], abs=0.2)
    assert moved["gate"] in {"kept", "dropped"}


def test_what_a_network_rests_on_is_logged(registry_here, capfd):
    stores.make_store(registry_here / "records", tasks=16)
    made = train(capfd, "mlp")
    found = connect().list_artifacts(made["run_id"], "figures")
    assert "figures/importance.png" in {file.path for file in found}


def test_a_pruned_training_is_judged_by_the_labels_of_the_whole(registry_here, capfd):
    """A program that pruning drops from the training side may be the best one of its task."""
    stores.make_store(registry_here / "records", tasks=6, per_task=24)
    whole, pruned = (
        train(capfd, "xgb", "--split", "within_task", "--pruned", choice)
        for choice in ("false", "true")
    )
    assert pruned["train_records"] < whole["train_records"]
    assert pruned["baselines"] == whole["baselines"]


def test_runs_that_compare_share_a_tag(here, capfd):
    """What the UI's search field finds by it, the compare page takes."""
    xgb, lgbm = (
        train(capfd, model, "--seed", seed) for model, seed in (("xgb", "1"), ("lgbm", "0"))
    )
    other = train(capfd, "xgb", "--split", "by_target", "--holdout", "b")
    client = connect()
    tags = [client.get_run(made["run_id"]).data.tags for made in (xgb, lgbm, other)]
    assert tags[0]["comparison"] == tags[1]["comparison"] != tags[2]["comparison"]
    experiment = client.get_run(xgb["run_id"]).info.experiment_id
    found = client.search_runs([experiment], f"tags.comparison = '{tags[0]['comparison']}'")
    assert {run.info.run_id for run in found} == {xgb["run_id"], lgbm["run_id"]}


def test_two_hardware_families_from_nothing(registry_here, capfd):
    stores.make_store(registry_here / "records", tasks=6)
    stores.make_store(registry_here / "gpus", tasks=6, family="gpu-nvidia")
    found = [
        train(capfd, "lgbm"),
        train(capfd, "attention", "--records", "gpus"),
        train(capfd, "lgbm", "--records", "gpus"),
    ]
    assert [(made["model"], made["version"]) for made in found] == [
        ("costmodel.cpu-x86", 1),
        ("costmodel.gpu-nvidia", 1),
        ("costmodel.gpu-nvidia", 2),
    ]


def test_a_family_learns_from_its_own_packaged_records(registry_here, monkeypatch, capfd):
    stores.make_store(registry_here / "packaged", tasks=6)
    gpus = registry_here / "packaged" / "gpu-nvidia"
    stores.make_store(gpus, ("gpu-a", "gpu-b"), tasks=6, family="gpu-nvidia")
    own = functools.partial(packaged_store, root=registry_here / "packaged")
    monkeypatch.setattr("registry.jobs.train.packaged_store", own)

    def trained(*options):
        return adapting.succeed(capfd, "train", "--effort", "quick", *options)

    made = trained("--family", "gpu-nvidia")
    assert (made["model"], made["devices"]) == ("costmodel.gpu-nvidia", "gpu-a,gpu-b")
    assert made["dataset_digest"] == RecordStore.open(gpus).digest()
    for stage in ("staging", "production"):
        adapting.succeed(capfd, "promote", "costmodel.gpu-nvidia", "1", "--to", stage)
    assert trained("--family", "gpu")["devices"] == made["devices"]
    for options in ((), ("--family", "cpu")):
        assert trained(*options)["devices"] == "a,b"


def test_hpo_chooses_among_values_and_tables(here, capfd):
    found = adapting.succeed(capfd, "hpo", "--model", "lgbm", *COMMON, "--trials", "2")
    assert found["best"]["params"]["stores"] in {"flat", "sum"}
    assert found["trials"]["done"] == 2


def test_a_quick_hpo_of_a_network_keeps_the_rounds_of_its_effort(here, capfd):
    found = adapting.succeed(capfd, "hpo", "--model", "mlp", *COMMON, "--trials", "1")
    assert "batch" in found["best"]["params"]
    parameters = mlflow.artifacts.load_dict(f"runs:/{found['run_id']}/model_parameters.json")
    assert parameters["rounds"] == 20
