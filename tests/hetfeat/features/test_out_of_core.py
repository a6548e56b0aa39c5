"""Features on disk: the same examples, and the same trees, as with features in memory."""

import dataclasses
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import stores
import xgboost
from hypothesis import given
from hypothesis import strategies as st

from hetfeat.dataset.splits import split_examples
from hetfeat.devices import host
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Batch, Examples
from hetfeat.features.out_of_core import SpilledBatch, SpillFile
from hetfeat.models.evaluate import evaluate
from hetfeat.models.hyperparameters import build
from registry.jobs.train import TrainingRequest, load_data

TREES = ("xgb", "lgbm")
MATRICES = ("DMatrix", "QuantileDMatrix", "ExtMemQuantileDMatrix")
"""How XGBoost has rows: as they are, as bins in memory, as bins in files."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> tuple[Examples, Examples]:
    """The examples of a store in memory, and in a file of many parts."""
    store = stores.make_store(tmp_path_factory.mktemp("records") / "s", tasks=24)
    outside = assemble(store, spill_file=SpillFile(600_000, part_bytes=80_000)).examples
    return assemble(store).examples, outside


def same(one: Batch, other: Batch) -> None:
    for field in dataclasses.fields(Batch):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def test_what_fits_stays_in_memory(pair, tmp_path):
    inside, outside = pair
    assert isinstance(inside.batch, Batch)
    assert isinstance(outside.batch, SpilledBatch)
    store = stores.make_store(tmp_path / "s")
    size = assemble(store).examples.batch.loaded().nbytes
    assert isinstance(assemble(store, room_bytes=1.1 * size).examples.batch, Batch)
    assert isinstance(assemble(store, room_bytes=0.9 * size).examples.batch, SpilledBatch)


def test_examples_on_disk_are_those_in_memory(pair):
    inside, outside = pair
    same(inside.batch, outside.batch.loaded())
    for field in dataclasses.fields(Examples):
        if field.name != "batch":
            np.testing.assert_array_equal(getattr(inside, field.name), getattr(outside, field.name))


def test_training_asks_how_much_memory_is_free(tmp_path, monkeypatch):
    store = stores.make_store(tmp_path / "s")
    request = TrainingRequest(store.path, None, "xgb", "by_task", (), "quick", 0)
    inside = load_data(request)
    monkeypatch.setattr(host, "memory_left_bytes", lambda: 1e6)  # as in a very small container
    outside = load_data(request)
    for side in ("train", "valid", "test"):
        one, other = (getattr(data, side).batch for data in (inside, outside))
        assert isinstance(one, Batch)
        assert isinstance(other, SpilledBatch)
        same(one, other.loaded())


@given(data=st.data())
def test_any_programs_in_any_order(pair, data):
    inside, outside = pair
    positions = st.lists(st.integers(0, len(inside) - 1), min_size=1, max_size=30)
    index = np.array(data.draw(positions))
    again = np.array(data.draw(st.lists(st.integers(0, len(index) - 1), min_size=1)))
    taken = outside.batch.take(index).take(again)
    same(inside.batch.take(index[again]), taken.loaded())
    assert sum(len(piece) for piece in taken.pieces()) == len(taken) == len(again)


def test_a_part_has_the_size_asked_for(pair):
    _, outside = pair
    sizes = [piece.loaded().nbytes for piece in outside.batch.pieces()]
    assert len(sizes) > 6
    assert min(sizes[:-1]) >= 80_000
    assert max(sizes) < 2.1 * 80_000


def test_small_batches_are_parts_together(pair):
    """Two of one program in a part, and one at the end; a batch without a program is in none."""
    inside, _ = pair
    size = inside.batch.take(np.array([0])).nbytes
    spill_file = SpillFile(0, part_bytes=3 * size // 2)
    for index in ([0], [], [0], [0]):
        spill_file.put(inside.batch.take(np.array(index, np.int64)))
    assert [len(piece) for piece in spill_file.whole().pieces()] == [2, 1]
    same(inside.batch.take(np.zeros(3, np.int64)), spill_file.whole().loaded())


@pytest.mark.parametrize("free_bytes", [1e6, 1e10], ids=["bins in files", "bins in memory"])
@pytest.mark.parametrize("kind", ["flat", "sum"])
@pytest.mark.parametrize("name", TREES)
def test_the_same_seed_gives_the_same_trees(name, kind, free_bytes, pair, monkeypatch):
    monkeypatch.setattr(host, "memory_left_bytes", lambda: free_bytes)
    matrices = {each: mock.Mock(wraps=getattr(xgboost, each)) for each in MATRICES}
    for each, watched in matrices.items():
        monkeypatch.setattr(xgboost, each, watched)
    found = []
    for examples in pair:
        split = split_examples(examples, "by_task", 1)
        sides = [examples.take(side) for side in (split.train, split.valid, split.test)]
        curve = []
        model = build(name, "quick", 0, {"rounds": 40, "stores": kind})
        model.fit(*sides[:2], lambda epoch, figures, to=curve: to.append(figures["valid_loss"]))
        found.append((curve, model.predict(sides[2].batch), evaluate(model, *sides).metrics))
    (curve, scores, metrics), (other_curve, other_scores, other_metrics) = found
    if name == "xgb":
        made = [matrices[each].call_count for each in MATRICES]
        assert made == ([2, 0, 2] if free_bytes == 1e6 else [2, 2, 0])
    np.testing.assert_allclose(other_curve, curve, rtol=1e-6)
    np.testing.assert_allclose(other_scores, scores, rtol=1e-5)
    assert other_metrics["pca"] == pytest.approx(metrics["pca"], abs=1e-3)
    assert metrics["pca"] > 0.7


def test_the_files_of_training_are_gone(pair, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(host, "memory_left_bytes", lambda: 1e6)
    model = build("xgb", "quick", 0, {"rounds": 3})
    during: list[list[Path]] = []
    model.fit(pair[1], pair[1], lambda *_: during.append(list(tmp_path.rglob("*.page"))))
    assert len(during[0]) == 2
    assert not list(tmp_path.iterdir())


def test_fine_tuning_takes_records_on_disk(pair):
    inside, _ = pair
    model = build("xgb", "quick", 0, {"rounds": 5, "fine_tune_rounds": 5})
    model.fit(inside, inside)
    tuned = [model.fine_tune(records).predict(inside.batch) for records in pair]
    np.testing.assert_array_equal(*tuned)
    assert (tuned[0] != model.predict(inside.batch)).any()


def test_networks_take_the_features_into_memory(pair):
    inside, outside = pair
    model = build("mlp", "quick", 0, {"rounds": 1, "width": 16})
    model.fit(outside, outside)
    scores = model.predict(outside.batch)
    np.testing.assert_allclose(model.predict(inside.batch), scores, rtol=1e-4)
