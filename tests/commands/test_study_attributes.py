"""Attributes of a study, which every worker may write: what is none is one line."""

from types import SimpleNamespace

import optuna
import pytest

from hetfeat.errors import DataError
from registry.jobs import hpo, optuna_study
from registry.jobs.train import TrainingRequest
from registry.models import process

BAD = ["[" * 4000, float("inf"), ["a", "list"], {}, {"n": [float("nan")]}]
TRAINING = TrainingRequest(None, None, "xgb", "by_task", (), "quick", 0)
RESULT = {
    "study": "s",
    "total": 1,
    "best": {"number": 0, "params": {}, "value": 0.5},
    "run_id": None,
    "model": "costmodel.cpu-x86",
    "version": 1,
    "metrics": {"pca": 0.5},
    "dataset_digest": "0",
}


def one_line(call) -> None:
    with pytest.raises(DataError, match="choose another --study") as caught:
        call()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.fixture
def again(monkeypatch):
    """Goes on with a study whose attribute was set to something."""
    monkeypatch.setattr(hpo, "evaluation_digest", lambda test: "e")
    data = SimpleNamespace(digest="d", family="cpu-x86", test=None)

    def go_on(key: str, value: object) -> optuna.Study:
        storage = optuna.storages.InMemoryStorage()
        hpo._study("s", storage, TRAINING, data).set_user_attr(key, value)
        return hpo._study("s", storage, TRAINING, data)

    return go_on


@pytest.mark.parametrize("value", [*BAD[:3], BAD[4]])
def test_request(again, value):
    one_line(lambda: again("request", value))


def test_a_request_without_a_key_is_of_an_older_study(again):
    assert again("request", {}).user_attrs["request"] == {}


@pytest.mark.parametrize("value", BAD)
def test_identity(again, value):
    one_line(lambda: again("identity", value))


def test_an_identity_that_was_removed_is_made_anew(again):
    assert len(again("identity", None).user_attrs["identity"]) == 32


@pytest.mark.parametrize("value", BAD)
def test_parent_run(again, value):
    one_line(lambda: hpo._parent_run(None, again("parent_run", value), TRAINING, {}))


@pytest.mark.parametrize(
    "value",
    [*BAD, *({k: v for k, v in RESULT.items() if k != key} for key in RESULT)],
)
def test_result(again, value):
    assert hpo._result(again("result", RESULT), 1) == RESULT
    one_line(lambda: hpo._result(again("result", value), 1))


@pytest.mark.parametrize("value", BAD)
def test_a_claim_that_names_no_process_is_nobodys(value):
    assert not process.is_described(value)
    assert not process.is_here(value) and not process.is_gone(value)
    assert process.is_described(process.describe())


@pytest.mark.parametrize("value", BAD)
def test_a_worker_that_is_no_process_is_watched(value):
    made = optuna.create_study()
    made.ask().set_user_attr(optuna_study.WORKER, value)
    assert optuna_study.Watch(made, stale_s=100.0).sweep() == 1
    assert optuna_study.Watch(made, stale_s=-1.0).sweep() == 0
