"""Who may promote, on a server with basic auth."""

import time

import pytest

from hetfeat.errors import RequestError, WorkFailed
from registry.files.moves import promote, rollback
from registry.models import aliases, lock
from registry.models.aliases import State
from registry.models.mlflow_client import connect
from registry.models.stages import history

pytestmark = [
    pytest.mark.services,
    pytest.mark.parametrize("tracking_uri", ["server"], indirect=True),
]


@pytest.fixture
def name(make_version, model_name) -> str:
    """Two versions of alice's, the first in production."""
    for _ in range(2):
        make_version(model_name)
    promote(model_name, 1, "production")
    return model_name


def promoted_by(server, user, name, monkeypatch) -> State:
    server.act_as(user, monkeypatch)
    promote(name, 2, "production", client=connect())
    return aliases.read(connect(), name).aliases


def test_a_reader_gets_a_sentence(server, name, monkeypatch):
    user = server.act_as("reader", monkeypatch)
    with pytest.raises(RequestError) as caught:
        promote(name, 2, "production")
    assert user in str(caught.value) and "EDIT" in str(caught.value)
    assert "\n" not in str(caught.value)
    server.act_as("alice", monkeypatch)
    assert aliases.read(connect(), name).aliases == State(production=1)
    assert len(history(name)[0]) == 1
    assert lock.locks_of(connect(), name) == []


def test_a_reader_cannot_roll_back(server, name, monkeypatch):
    promote(name, 2, "production")
    server.act_as("reader", monkeypatch)
    with pytest.raises(RequestError, match="EDIT"):
        rollback(name)
    assert aliases.read(connect(), name).aliases == State(production=2, previous=1)


def test_nobody_gets_a_sentence(server, name, monkeypatch):
    for variable in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.delenv(variable)
    with pytest.raises(RequestError, match="MLFLOW_TRACKING_USERNAME"):
        promote(name, 2, "production")


def test_a_wrong_password_gets_a_sentence(server, name, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "changed meanwhile")
    with pytest.raises(RequestError, match="MLFLOW_TRACKING_PASSWORD"):
        promote(name, 2, "production")


def test_another_user_with_the_right_may_promote(server, name, monkeypatch):
    server.act_as("bob", monkeypatch)
    server.grant("bob", name, "EDIT", monkeypatch)
    assert promoted_by(server, "bob", name, monkeypatch) == State(production=2, previous=1)
    assert history(name)[0][-1]["who"].startswith("bob-")


def test_the_lock_a_reader_leaves_delays_a_promotion_once(server, name, monkeypatch):
    server.act_as("reader", monkeypatch)
    connect().create_registered_model(f"lock--{name}", tags={"holder": "reader"})
    server.act_as("alice", monkeypatch)
    waits = []
    for version in (2, 1, 2):
        started = time.monotonic()
        with lock.locked(connect(), name, lock.LockOptions(stale_s=2.0)):
            pass
        promote(name, version, "production")
        waits.append(time.monotonic() - started)
    assert waits[0] >= 2.0
    assert max(waits) < lock.LOCK.stale_s
    assert [seen.holder for seen in lock.locks_of(connect(), name)] == ["reader"]


def test_a_server_that_is_gone_gets_a_sentence(server, name, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(WorkFailed, match="MLFLOW_TRACKING_URI"):
        promote(name, 2, "production", client=connect("http://127.0.0.1:9"))


@pytest.mark.parametrize("what", ["tag", "alias", "stage"])
def test_a_reader_cannot_go_round_the_gates(server, name, monkeypatch, what):
    server.act_as("reader", monkeypatch)
    client = connect()
    with pytest.raises(Exception, match=r"403|[Pp]ermission"):
        if what == "tag":
            client.set_registered_model_tag(name, "ledger.000001", "{}")
        elif what == "alias":
            client.set_registered_model_alias(name, "production", "2")
        else:
            client.transition_model_version_stage(name, "2", "Production")
