import json
import os
import threading
import time
from pathlib import Path

import pytest
from conftest import on_sqlite_only
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED, RESOURCE_DOES_NOT_EXIST
from mlflow.store.entities import PagedList

from hetfeat.errors import RequestError, WorkFailed
from registry.models import lock, process
from registry.models.lock import LOCK, LockOptions, locked, locks_of

pytestmark = on_sqlite_only

NAME = "costmodel.cpu-x86"


@pytest.fixture
def model(client) -> str:
    client.create_registered_model(NAME)
    return NAME


def leave_lock(client, key: str = f"lock--{NAME}", **tags: str) -> None:
    """A lock whose holder is on another machine and never comes back."""
    client.create_registered_model(key, tags={"token": key, "holder": "eve", **tags})


def test_it_is_there_while_held_and_gone_after(client, model):
    with locked(client, model):
        assert [seen.key for seen in locks_of(client, model)] == [f"lock--{NAME}"]
    assert locks_of(client, model) == []


def test_it_is_released_when_the_work_fails(client, model):
    with pytest.raises(ZeroDivisionError), locked(client, model):
        _ = 1 / 0
    assert locks_of(client, model) == []


def test_one_at_a_time(client, model):
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        with locked(client, model):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.02)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 6


def test_a_live_lock_is_waited_for_and_its_holder_named(client, model):
    leave_lock(client)
    with (
        pytest.raises(WorkFailed, match="held by eve"),
        locked(client, model, LockOptions(wait_s=0.3)),
    ):
        pass


def test_a_stale_lock_of_another_user_is_passed_not_deleted(client, model):
    leave_lock(client)
    started = time.monotonic()
    with locked(client, model, LockOptions(stale_s=0.5)):
        keys = [seen.key for seen in locks_of(client, model)]
        assert keys == [f"lock--{NAME}", f"lock--{NAME}--2"]
    assert 0.5 <= time.monotonic() - started < LOCK.stale_s
    assert [seen.key for seen in locks_of(client, model)] == [f"lock--{NAME}"]


def test_who_comes_later_need_not_wait_for_a_lock_that_was_passed(client, model):
    leave_lock(client)
    with locked(client, model, LockOptions(stale_s=0.5)):
        pass
    started = time.monotonic()
    with locked(client, model):
        pass
    assert time.monotonic() - started < LOCK.stale_s


def test_a_lock_of_a_dead_process_of_this_machine_is_no_wait(client, model):
    dead = json.loads(process.describe()) | {"pid": 2**22 - 3, "started": "1"}
    leave_lock(client, owner=json.dumps(dead, sort_keys=True))
    started = time.monotonic()
    with locked(client, model):
        pass
    assert time.monotonic() - started < LOCK.stale_s


def test_a_new_lock_of_the_plain_name_keeps_out_of_a_later_generation(client, model):
    leave_lock(client, f"lock--{NAME}--2")
    with pytest.raises(WorkFailed), locked(client, model, LockOptions(wait_s=0.3)):
        pass
    assert [seen.key for seen in locks_of(client, model)] == [f"lock--{NAME}--2"]


def test_a_lock_that_goes_while_it_is_asked_for_is_asked_for_again(client, model, monkeypatch):
    """MLflow reads the model in the way to say that it exists, and no longer finds it."""
    created = []

    def create(key, tags):
        created.append(key)
        if len(created) == 1:
            raise MlflowException(f"model with name={key} not found", RESOURCE_DOES_NOT_EXIST)
        return type(client).create_registered_model(client, key, tags=tags)

    monkeypatch.setattr(client, "create_registered_model", create)
    with locked(client, model):
        assert [seen.key for seen in locks_of(client, model)] == created[1:]
    assert created == [f"lock--{NAME}"] * 2


def test_the_lock_of_a_longer_name_is_another(client, model):
    leave_lock(client, f"lock--{NAME}.laptop")
    with locked(client, model, LockOptions(wait_s=0.3)) as held:
        assert held.key == f"lock--{NAME}"


def test_a_holder_that_was_away_stops(client, model):
    with (
        locked(client, model, LockOptions(hold_s=0.0)) as held,
        pytest.raises(WorkFailed, match="repeat"),
    ):
        time.sleep(0.01)
        held.check()


def test_a_lock_that_may_not_be_deleted_is_marked_as_released(client, model, monkeypatch):
    monkeypatch.setattr(lock, "_delete", lambda client, key: False)
    with locked(client, model):
        pass
    monkeypatch.undo()
    assert len(locks_of(client, model)) == 1
    with locked(client, model, LockOptions(stale_s=30, wait_s=5)):
        pass


def test_a_process_that_is_hidden_from_this_user_may_live(client, monkeypatch):
    """As /proc mounted with `hidepid` shows it."""
    other = json.loads(process.describe()) | {"pid": os.getppid()}
    original = Path.read_text

    def hidden(path, *given, **named):
        if str(path) == f"/proc/{os.getppid()}/stat":
            raise FileNotFoundError
        return original(path, *given, **named)

    monkeypatch.setattr(Path, "read_text", hidden)
    assert not process.is_gone(json.dumps(other))
    assert not process.is_here(json.dumps(other))


def test_a_process_knows_itself_and_the_dead(client):
    assert not process.is_gone(process.describe())
    assert not process.is_gone("")
    assert not process.is_gone(json.dumps({"pid": 1, "started": "1", "host": "elsewhere"}))
    assert process.is_here(process.describe()) and not process.is_here("")


THERE = {"host": "h", "boot": "b", "namespace": "n", "pid": 7, "started": "1"}


@pytest.mark.parametrize(
    "owner",
    [
        "[" * 4000,
        '{"pid": Infinity, "started": "1"}',
        "[1]",
        "null",
        json.dumps(THERE | {"pid": 10**400}),
        json.dumps(THERE | {"pid": True}),
        json.dumps(THERE | {"pid": -1}),
        json.dumps(THERE | {"host": ["h"]}),
        json.dumps(THERE | {"host": "h" * 4000}),
        json.dumps(THERE | {"started": {"a": 1}}),
    ],
)
def test_a_lock_of_a_hostile_owner_is_one_that_cannot_be_known(client, model, owner):
    leave_lock(client, owner=owner)
    with locked(client, model, LockOptions(stale_s=0.2)):
        pass
    assert not process.is_gone(owner) and not process.is_here(owner)


@pytest.mark.parametrize("worker", [None, 3, ["a"], {"pid": 1}])
def test_an_owner_that_is_no_text_cannot_be_known(client, worker):
    assert not process.is_gone(worker) and not process.is_here(worker)


@pytest.mark.parametrize("passed", ["[" * 4000, "7", '{"a": 1}', "[[1]]"])
def test_what_was_passed_is_believed_only_as_a_list_of_texts(client, model, passed):
    client.set_registered_model_tag(model, lock.PASSED, passed)
    leave_lock(client)
    with locked(client, model, LockOptions(stale_s=0.7)):
        assert lock._passed(client, model) != frozenset(passed)


@pytest.fixture
def blind(client, monkeypatch):
    """Locks of others as basic auth without READ shows them: refused, and left out of a search."""
    look = client.get_registered_model

    def refuse(name):
        if name.startswith("lock--"):
            raise MlflowException("not for you", PERMISSION_DENIED)
        return look(name)

    monkeypatch.setattr(client, "search_registered_models", lambda *_, **__: PagedList([], None))
    monkeypatch.setattr(client, "get_registered_model", refuse)


def test_locks_that_cannot_be_read_are_refused_not_waited_for(client, model, blind):
    leave_lock(client)
    with (
        pytest.raises(RequestError, match=f"'{model}'.*permission READ.*default_permission"),
        locked(client, model, LockOptions(stale_s=0.1, wait_s=2)),
    ):
        pass


def test_one_lock_that_is_hidden_is_refused(client, model, blind, monkeypatch):
    leave_lock(client)
    refuse = client.get_registered_model

    def hide_only_that(name):
        if name.endswith("--0"):
            raise MlflowException("no such model", RESOURCE_DOES_NOT_EXIST)
        return refuse(name)

    monkeypatch.setattr(client, "get_registered_model", hide_only_that)
    with pytest.raises(RequestError), locked(client, model, LockOptions(stale_s=0.1, wait_s=2)):
        pass


def test_a_holder_whose_machine_slept_stops(client, model, monkeypatch):
    """CLOCK_BOOTTIME goes on meanwhile; CLOCK_MONOTONIC stands still."""
    real = time.clock_gettime
    with locked(client, model) as held:
        held.check()
        slept = {time.CLOCK_BOOTTIME: 3600.0}
        monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + slept.get(clock, 0))
        with pytest.raises(WorkFailed, match="held for 3600 s"):
            held.check()
        monkeypatch.undo()
