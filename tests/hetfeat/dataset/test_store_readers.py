"""What readers of a store meet: dates that are not known, and a writer beside them."""

from dataclasses import replace

import pytest
import stores

from hetfeat.dataset.stats import measured_between
from hetfeat.dataset.store import RecordStore
from hetfeat.errors import DataError
from hetfeat.records import Measurement, Program


@pytest.fixture
def store(tmp_path):
    return RecordStore.create(tmp_path / "store")


def measurements(number: int, unix_s: float = 1.0):
    programs = stores.programs(stores.task(number), 3, seed=0)
    return [replace(stores.measured(p, stores.profile("a")), unix_s=unix_s) for p in programs]


def test_records_without_a_date_are_not_of_1970(store):
    store.append(measurements(0, 0.0))
    assert measured_between(store) is None
    store.append(measurements(1, 5.0))
    assert measured_between(store) == (5.0, 5.0)


@pytest.mark.parametrize("more", [True, False])
def test_a_store_that_is_compacted_while_it_is_read_says_so(store, more):
    store.append(measurements(0))
    pieces = list(store.pieces())
    store.compact()
    if more:
        store.append(measurements(1))
    with pytest.raises(DataError, match="while it was read"):
        [piece.read() for piece in pieces]


def test_the_digest_is_of_what_was_read(store):
    store.append(measurements(0))
    with store.undisturbed() as digest:
        pass
    assert digest == store.digest()
    with pytest.raises(DataError, match="grew while it was read"), store.undisturbed():
        store.append(measurements(1))


def test_a_shard_knows_whether_each_record_has_features(store):
    bare = Measurement(Program(stores.task(0), "[[],[[9,9]]]"), "a", (), "schedule", 1.0, "")
    store.append(measurements(0))
    assert [piece.has_all("stores") for piece in store.pieces()] == [False]  # of a journal
    store.compact()
    (shard,) = store.pieces()
    assert shard.has_all("stores") and shard.has_all("trace")
    assert not shard.has_all("error") and not shard.has_all("latency")
    store.append([bare])
    store.compact()
    assert not all(piece.has_all("stores") for piece in store.pieces())
