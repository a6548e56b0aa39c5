"""What is wrong with a request is said before anything is read or made."""

import shlex

import pytest
from deploy_reports import deployment
from door import hetfeat

import mlproject
import registry.jobs.deploy
from hetfeat.tune.session import BUDGETS
from registry.cli import app
from registry.cli.deploy import EFFORT_COSTS


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("train --records nowhere --split by-task", "did you mean 'by_task'?"),
        ("train --records nowhere --model xgbb", "did you mean 'xgb'?"),
        ("hpo --records nowhere --split foo", "expected one of within_task, by_task, by_target"),
        ("search --space nowhere --strategy gbfs,gbsf", "strategy 'gbsf'"),
        ("import nowhere --format anzor --device lab", "did you mean 'ansor'?"),
        ("deploy resnett18 --device nowhere", "such as resnet18"),
        ("deploy missing.onnx --search evolutoin", "did you mean 'evolution'?"),
    ],
)
def test_a_wrong_name(tmp_path, monkeypatch, capfd, line, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    refused = hetfeat(capfd, *shlex.split(line))
    assert refused.code == 2
    assert said in refused.errors.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("effort", "advice"), [("quick", ": try --effort standard."), ("full", " by 1.25.")]
)
def test_a_slower_deployment_says_what_to_try(monkeypatch, capfd, effort, advice):
    made = deployment(latency_ms=10.0, peers_ms={"onnxruntime": 8.0})
    monkeypatch.setattr(registry.jobs.deploy, "deploy_and_register", lambda job: made)
    assert app.run(mlproject.cli, ["deploy", "resnet18", "--effort", effort]) == 0
    printed = capfd.readouterr().out
    assert "Slower than ONNX Runtime by 1.25" in printed
    assert advice in printed


def test_a_faster_deployment_says_so(monkeypatch, capfd):
    made = deployment(latency_ms=10.0, peers_ms={"onnxruntime": 12.0})
    monkeypatch.setattr(registry.jobs.deploy, "compile_and_register", lambda *given: made)
    assert app.run(mlproject.cli, ["compile", "--from", "bundle.journal"]) == 0
    assert "1.20 times as fast as ONNX Runtime" in capfd.readouterr().out


def test_a_peer_that_was_left_out_says_why(monkeypatch, capfd):
    told = {"peers_ms": {"openvino": None}, "left_out": {"openvino": "it takes two threads"}}
    made = deployment(**told)
    monkeypatch.setattr(registry.jobs.deploy, "deploy_and_register", lambda job: made)
    assert app.run(mlproject.cli, ["deploy", "resnet18"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert "left out because" in lines[0]
    (row,) = [line for line in lines if line.startswith("openvino ")]
    assert row.endswith("it takes two threads")


def test_the_help_says_what_an_effort_costs():
    minutes = [f"{budget.seconds / 60:.2g}" for budget in BUDGETS.values()]
    programs = [str(budget.trials_per_task) for budget in BUDGETS.values()]
    for figures in (minutes, programs):
        assert "{}, {} or {}".format(*figures) in EFFORT_COSTS
