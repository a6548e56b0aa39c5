"""What each trial of `hetfeat hpo` leaves in MLflow, and how a bad one ends."""

from pathlib import Path
from typing import Any

import adapting
import optuna
import pytest
import stores

import mlproject
from hetfeat.errors import WorkFailed
from registry.cli import app
from registry.jobs import optuna_study
from registry.models.mlflow_client import connect
from registry.models.version import COMPARISON_TAG
from registry.tracking import finished_runs

pytestmark = pytest.mark.slow

COMMON = ("--records", "records", "--effort", "quick")
PRUNED_AT = optuna_study.TRIALS.report_rounds


@pytest.fixture
def here(registry_here: Path) -> Path:
    stores.make_store(registry_here / "records", tasks=6)
    return registry_here


def trials() -> list[Any]:
    """The runs of trials, in their order."""
    client = connect()
    experiment = client.get_experiment_by_name("hetfeat").experiment_id
    query = "attributes.run_name LIKE 'trial %'"
    return client.search_runs([experiment], query, order_by=["attributes.start_time ASC"])


class PrunesAll(optuna.pruners.BasePruner):
    """Ends every trial in mid-training."""

    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        return (trial.last_step or 0) >= PRUNED_AT


@pytest.mark.parametrize("model", ["xgb", "lgbm", "mlp", "attention"])
def test_pruning_ends_a_training_in_every_engine(here, capfd, monkeypatch, model):
    monkeypatch.setattr(optuna_study, "pruner", lambda options: PrunesAll())
    code = app.run(mlproject.cli, ["hpo", "--model", model, *COMMON, "--trials", "2"])
    assert code == WorkFailed.exit_code
    assert "all were pruned" in capfd.readouterr().err.splitlines()[-1]
    (found,) = optuna.get_all_study_names(storage := optuna_study.open_storage("", ""))
    states = [trial.state for trial in optuna.load_study(study_name=found, storage=storage).trials]
    assert states == [optuna.trial.TrialState.PRUNED] * 2
    for run in trials():
        assert (run.info.status, run.data.tags["state"]) == ("FINISHED", "pruned")
        steps = [step for step, _ in finished_runs.history(run.info.run_id, "valid_pca")]
        assert steps == list(range(PRUNED_AT + 1))


def test_attention_is_searched_like_the_others(here, capfd):
    found = adapting.succeed(capfd, "hpo", "--model", "attention", *COMMON, "--trials", "1")
    assert {"layers", "heads", "unrolling"} <= set(found["best"]["params"])
    assert connect().get_model_version(found["model"], "1").tags["model"] == "attention"


def test_runs_of_a_study_hold_what_a_training_holds(here, capfd):
    trained = adapting.succeed(capfd, "train", *COMMON)
    found = adapting.succeed(capfd, "hpo", *COMMON, "--trials", "1")
    client = connect()
    training, best = (client.get_run(run_id) for run_id in (trained["run_id"], found["run_id"]))
    parent = client.get_run(best.data.tags["mlflow.parentRunId"])
    (trial,) = trials()

    said = {k: v for k, v in training.data.tags.items() if not k.startswith("mlflow.")}
    assert said.pop("command") == "train"
    assert {"git_commit", "system.cpu", "version.xgboost", "dataset_digest", "split"} <= set(said)
    assert said.items() <= best.data.tags.items()
    assert said.pop(COMPARISON_TAG)
    for run in (trial, parent):
        assert said.items() <= run.data.tags.items()
        assert COMPARISON_TAG not in run.data.tags, "it is not judged on the test side"

    inputs = [run.inputs.dataset_inputs for run in (training, trial)]
    assert [str(given.dataset) for given in inputs[0]] == [
        str(given.dataset) for given in inputs[1]
    ]
    assert inputs[1][0].tags == inputs[0][0].tags

    curve = client.get_metric_history(trial.info.run_id, "valid_loss")
    last = len(curve) - 1
    assert [point.step for point in curve] == list(range(last + 1))
    assert last >= 10
    final = max(
        client.get_metric_history(trial.info.run_id, "valid_pca"), key=lambda p: p.timestamp
    )
    assert (final.step, final.value) == (last, found["best"]["value"])
    assert trial.data.metrics["valid_pca"] == found["best"]["value"]
