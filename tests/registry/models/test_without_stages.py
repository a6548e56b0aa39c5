"""Stages of versions with an MLflow that has none of its own any more."""

import itertools

import pytest
from conftest import on_sqlite_only
from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion, RegisteredModel

from registry.files.moves import promote, rollback
from registry.models import aliases
from registry.models.aliases import State
from registry.models.stages import history
from registry.models.versions import resolve

pytestmark = on_sqlite_only


@pytest.fixture
def take_away(monkeypatch):
    """Takes the calls and fields of MLflow's stages away."""

    def take() -> None:
        for call in ("transition_model_version_stage", "get_latest_versions"):
            monkeypatch.delattr(MlflowClient, call)
        monkeypatch.delattr(ModelVersion, "current_stage")
        monkeypatch.delattr(RegisteredModel, "latest_versions")

    return take


def shown(client, name: str) -> State:
    state = aliases.read(client, name).aliases
    assert aliases.differences(client, name, state) == []
    return state


def test_a_version_goes_its_way(client, make_version, model_name, take_away):
    take_away()
    for _ in range(2):
        make_version(model_name)
    assert resolve(f"{model_name}/1").stage == "none"
    promote(model_name, 1, "staging")
    promote(model_name, 1, "production")
    assert shown(client, model_name) == State(production=1)
    promote(model_name, 2, "production")
    assert shown(client, model_name) == State(production=2, previous=1)
    assert [resolve(f"{model_name}/{n}").stage for n in (1, 2)] == ["archived", "production"]
    promote(model_name, 2, "archived")
    assert shown(client, model_name) == State(previous=2)
    entries, faults = history(model_name)
    assert faults == []
    assert [(entry["version"], entry["from"], entry["to"]) for entry in entries] == [
        (1, "none", "staging"),
        (1, "staging", "production"),
        (2, "none", "production"),
        (2, "production", "archived"),
    ]


def test_out_of_the_archive_and_back_into_it(make_version, model_name, take_away):
    take_away()
    make_version(model_name)
    way = ["archived", "staging", "archived", "production", "archived"]
    for to in way:
        promote(model_name, 1, to)
    moves = [(entry["from"], entry["to"]) for entry in history(model_name)[0]]
    assert moves == list(itertools.pairwise(["none", *way]))


def test_what_was_promoted_before_stays_where_it_is(client, make_version, model_name, take_away):
    for _ in range(2):
        make_version(model_name)
    promote(model_name, 1, "production")
    take_away()
    assert resolve(model_name, "production").stage == "production"
    assert shown(client, model_name) == State(production=1)
    promote(model_name, 2, "production")
    rollback(model_name)
    assert shown(client, model_name).production == 1
    assert resolve(f"{model_name}/2").stage == "archived"


def test_a_stage_that_is_none_does_not_count(client, make_version, model_name, take_away):
    make_version(model_name)
    take_away()
    client.set_model_version_tag(model_name, "1", "stage", "<b>")
    assert resolve(f"{model_name}/1").stage == "none"
