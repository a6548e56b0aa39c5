"""Runs of the tracking store read as plain data, and runs made beside that of `mlflow run`."""

import functools
import os
import time

import pytest

from registry.tracking import command_run, finished_runs


@pytest.fixture
def client(registry_here):
    from registry.models.mlflow_client import connect

    return connect()


def made(client, experiment: str, name: str, status: str = "FINISHED", **tags: str) -> str:
    run = client.create_run(experiment, run_name=name, tags=tags, start_time=1_700_000_000_000)
    client.log_param(run.info.run_id, "resolved.seed", "3")
    client.log_metric(run.info.run_id, "pca", 0.7, step=0)
    client.log_metric(run.info.run_id, "pca", 0.8, step=5)
    client.set_terminated(run.info.run_id, status, end_time=1_700_000_060_000)
    return str(run.info.run_id)


def in_pages_of_two(search, *conditions, **page):
    return search(*conditions, **page | {"max_results": 2})


def test_finished_runs_of_every_experiment_page_by_page(client, monkeypatch):
    for name in ("search_experiments", "search_runs"):  # a server may give fewer than asked for
        search = getattr(client, name)
        few = functools.partial(in_pages_of_two, search)
        monkeypatch.setattr(client, name, few)
    other = client.create_experiment("other")
    wanted = {made(client, experiment, "train xgb by_task") for experiment in "00000"}
    wanted.add(made(client, other, "train xgb by_task", device="d"))
    made(client, "0", "train xgb by_task", status="FAILED")
    made(client, "0", "train xgb by_task", status="KILLED")
    found = finished_runs.finished_runs(client)
    assert {run.id for run in found} == wanted
    (own,) = [run for run in found if run.device == "d"]
    assert (own.command, own.seed, own.metrics["pca"]) == ("train", "3", 0.8)
    assert (own.duration_s, own.date) == (60.0, "2023-11-14")
    assert finished_runs.history(own.id, "pca", client) == [(0, 0.7), (5, 0.8)]


def test_a_part_counts_although_the_whole_failed(client):
    whole = made(client, "0", "search gemm 8,8,8", status="FAILED", space="gemm 8,8,8 on d")
    part = client.create_run("0", run_name="gbfs", tags={"mlflow.parentRunId": whole})
    client.log_param(part.info.run_id, "strategy", "gbfs")
    client.set_terminated(part.info.run_id)
    (found,) = finished_runs.finished_runs(client)
    assert (found.command, found.parent) == ("search", whole)
    assert found.params == {"resolved.seed": "3", "strategy": "gbfs"}
    assert found.tags["space"] == "gemm 8,8,8 on d"


def test_the_command_is_known_however_it_was_started(client):
    made(client, "0", "nice-name-42", command="train")
    made(client, "0", "nice-name-43", **{"mlflow.project.entryPoint": "main"})
    made(client, "0", "xgb-by_task-1234", command="hpo")
    assert sorted(run.command for run in finished_runs.finished_runs(client)) == [
        "hpo",
        "train",
        "train",
    ]


def test_a_model_leads_to_the_run_that_made_it(client):
    trained = made(client, "0", "train xgb by_task")
    client.create_registered_model("costmodel.cpu-x86")
    source = f"{client.get_run(trained).info.artifact_uri}/model"
    client.create_model_version("costmodel.cpu-x86", source, trained)
    tuned = made(client, "0", "deploy resnet18", parent_model_uri="models:/costmodel.cpu-x86/1")
    gone = made(client, "0", "deploy resnet18", parent_model_uri="models:/costmodel.cpu-x86/9")
    sources = {run.id: run.source for run in finished_runs.finished_runs(client)}
    assert sources == {trained: None, tuned: trained, gone: None}


def test_runs_beside_that_of_mlflow_run(client, monkeypatch):
    experiment = client.create_experiment("of the project")
    project_run = client.create_run(experiment).info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", project_run)
    with command_run.beside_the_project_run():
        for name in ("train xgb by_task", "train mlp by_task"):
            with command_run.tracked_run(name, {}) as run:
                assert run.info.run_id != project_run
                assert run.info.experiment_id == experiment
    with command_run.tracked_run("report", {}) as run:
        assert run.info.run_id == project_run
    commands = [found.command for found in finished_runs.finished_runs(client)]
    assert sorted(commands) == ["report", "train", "train"]


def test_an_experiment_that_the_user_named_is_kept_to(client, monkeypatch):
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", client.create_experiment("mine"))
    with command_run.tracked_run("train xgb by_task", {}) as run:
        assert client.get_experiment(run.info.experiment_id).name == "mine"
    monkeypatch.delenv("MLFLOW_EXPERIMENT_ID")
    for _ in range(2):
        with command_run.tracked_run("train xgb by_task", {}) as run:
            assert client.get_experiment(run.info.experiment_id).name == command_run.EXPERIMENT
        assert "MLFLOW_EXPERIMENT_ID" not in os.environ


def test_the_newest_run_comes_last(client):
    first = made(client, "0", "train a")
    run = client.create_run("0", run_name="train b", start_time=int(time.time() * 1000))
    client.set_terminated(run.info.run_id)
    assert [found.id for found in finished_runs.finished_runs(client)] == [first, run.info.run_id]


def test_a_run_that_was_ended_from_outside_has_no_duration(client):
    run = client.create_run("0", run_name="train a", start_time=1_700_000_000_000)
    client.update_run(run.info.run_id, status="FINISHED")
    (found,) = finished_runs.finished_runs(client)
    assert found.duration_s == 0.0
