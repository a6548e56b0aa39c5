"""A table of records on a real S3 server: does it admit one writer, and do many collectors fit?"""

import secrets

import killed_collectors
import pytest

from hetfeat.dataset.tables import engine
from hetfeat.dataset.tables.table import RecordTable
from hetfeat.dataset.tables.upkeep import compact
from hetfeat.dataset.tables.uri import as_place
from hetfeat.errors import DataError

COLLECTORS, KILLS = 20, 12
pytestmark = pytest.mark.services


@pytest.fixture
def uri(services):
    return as_place(f"s3://mlflow/lab-{secrets.token_hex(4)}/records")


@pytest.fixture
def locked(services, monkeypatch):
    monkeypatch.setenv(engine.LOCK, services["HETFEAT_TEST_STUDIES"])


def test_this_server_admits_several_writers_of_a_key_so_that_a_table_needs_a_lock(uri, monkeypatch):
    """Swift looks whether there is an object, and then writes it: two may look at once."""
    monkeypatch.delenv(engine.LOCK, raising=False)
    admitted = [engine.admitted_writers(uri, COLLECTORS) for _ in range(5)]
    assert min(admitted) >= 1
    assert max(admitted) > 1
    with pytest.raises(DataError, match=f"set {engine.LOCK}"):
        engine.check_conditional_writes(uri, rounds=20)


def test_a_table_of_locked_writers_refuses_those_without(uri, locked, monkeypatch):
    table = RecordTable.create(uri)
    monkeypatch.delenv(engine.LOCK)
    with pytest.raises(DataError, match=f"set {engine.LOCK}"):
        compact(table)


@pytest.mark.timeout(600)
def test_twenty_collectors_killed_at_random_lose_nothing_and_repeat_nothing(uri, locked, tmp_path):
    assert killed_collectors.run(str(uri), tmp_path, COLLECTORS, count=4, kills=KILLS) == KILLS
    killed_collectors.check(str(uri), tmp_path, COLLECTORS, count=4)
