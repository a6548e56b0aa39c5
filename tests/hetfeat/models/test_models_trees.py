"""Boosted trees: their objective, and the tables they read."""

import json
from dataclasses import replace

import numpy as np
import pytest
import stores
from hypothesis import given
from hypothesis import strategies as st

from hetfeat.errors import RequestError
from hetfeat.features import columns
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Batch, Examples
from hetfeat.features.trace import WIDTH
from hetfeat.models import gbdt_parameters
from hetfeat.models.aggregate import flat_features, sums_of_runs, table_names, table_of
from hetfeat.models.engines.trees import RowObjective, rows_of
from hetfeat.models.gbdt_parameters import GbdtParameters, LgbmParameters
from hetfeat.models.hyperparameters import build
from hetfeat.models.native_child import check_file
from hetfeat.models.pairs import pairs_of
from hetfeat.models.registry import load_model
from hetfeat.models.relative import relative_features
from hetfeat.models.training_set import side_of


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> Examples:
    return assemble(stores.make_store(tmp_path_factory.mktemp("records") / "s")).examples


def test_pairs_stay_inside_a_task_on_a_device(examples):
    pairs = pairs_of(examples)
    assert len(pairs) > 100
    assert_comparable(examples, pairs)


def assert_comparable(examples, pairs) -> None:
    for column in (examples.task, examples.device):
        assert (column[pairs.faster] == column[pairs.slower]).all()
    assert np.isnan(examples.latency_s).any(), "of failures, which are compared with none"
    slower, faster = (examples.latency_s[side] for side in (pairs.slower, pairs.faster))
    assert (slower >= faster * 1.05).all()


def test_pairs_of_a_large_task_are_drawn(tmp_path):
    examples = assemble(stores.make_store(tmp_path / "s", tasks=2, per_task=400)).examples
    pairs = pairs_of(examples)
    assert 0 < len(pairs) < 4 * 400 * 399 / 4
    assert_comparable(examples, pairs)


@pytest.mark.parametrize("kind", ["flat", "sum"])
@pytest.mark.parametrize("point_weight", [0.0, 1.0])
def test_gradients_are_those_of_the_loss(examples, kind, point_weight):
    """Against finite differences, for each part of the loss alone, by the margin of each row."""
    part = examples.take(np.arange(12))
    table = rows_of(part.batch, kind)
    own = RowObjective(side_of(part, seed=0).objective(point_weight), table)
    rows = len(table.program)
    margins = np.random.default_rng(0).normal(size=rows)

    def loss(row_margins):
        return own.objective.loss(table.sums(row_margins))

    gradient, hessian = own.gradient(margins)
    steps = [(loss(margins + step) - loss(margins - step)) / 2e-5 for step in np.eye(rows) * 1e-5]
    scale = np.abs(gradient).sum() / np.abs(steps).sum()
    np.testing.assert_allclose(gradient, np.array(steps) * scale, atol=1e-5 * scale)
    # The curvature is that of the program, times its rows: they all move at once.
    bends = [
        (own.gradient(margins + step)[0] - own.gradient(margins - step)[0])
        @ step
        / (2 * step @ step)
        for step in np.eye(rows) * 1e-4
    ]
    counts = np.bincount(table.program)[table.program]
    np.testing.assert_allclose(hessian, np.maximum(bends, 1e-6) * counts, rtol=1e-3)


def test_flat_columns_fold_the_stores():
    """By hand: two programs, the first of two stores, and one without any."""
    stores_of = np.zeros((3, 164), np.float32)
    stores_of[:, 2] = [1, 3, 2]  # float_mul: the second store computes most
    stores_of[:, 17] = [3, 1, 4]  # vectorize_product: 7 + 1 = 8
    batch = Batch(
        stores=stores_of,
        offsets=np.array([0, 2, 2, 3]),
        trace=np.full((3, len(columns.TRACE)), 3, np.float32),
        steps=np.zeros((0, WIDTH), np.float32),
        step_offsets=np.zeros(4, np.int64),
        task=np.ones((3, len(columns.TASK)), np.float32),
        hardware=np.full((3, len(columns.HARDWARE)), 2, np.float32),
    )
    flat = dict(zip(table_names("flat"), flat_features(batch).T.tolist(), strict=True))
    assert flat["main.vectorize_product"] == [1, 0, 4]
    assert flat["total.vectorize_product"] == pytest.approx([np.log2(9), 0, 4])
    assert flat["trace.split0_factor0"] == [3, 3, 3]
    assert flat["task.flops"] == [1, 1, 1]
    assert flat["hardware.threads"] == [2, 2, 2]


@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_the_stores_of_each_program_are_summed(counts, seed):
    rows = np.exp2(np.random.default_rng(seed).uniform(-30, 30, (sum(counts), 3)))
    starts = np.cumsum([0, *counts[:-1]])
    expected = np.add.reduceat(rows, starts, axis=0)
    np.testing.assert_allclose(sums_of_runs(rows, starts, np.array(counts)), expected, 1e-14)


def test_a_store_in_relation_to_its_task_and_device():
    """By hand: 6 parallel rounds on 4 threads, vectors of 4 in registers of 8, work done twice."""
    store, task, hardware = (
        np.zeros((1, len(kind)), np.float32)
        for kind in (columns.STORE, columns.TASK, columns.HARDWARE)
    )

    def put(row, kind, **values):
        for name, value in values.items():
            row[0, [column.name for column in kind].index(name)] = np.log2(value)

    put(store, columns.STORE, parallel_product=7, vectorize_product=5, float_mul=2049)
    put(store, columns.STORE, buffer0_bytes=1025, buffer4_bytes=1025, buffer0_unique_bytes=513)
    put(store, columns.STORE, buffer1_unique_bytes_per_reuse=65, buffer2_reuse_distance_bytes=9)
    put(task, columns.TASK, flops=1024, bytes=512)
    put(hardware, columns.HARDWARE, threads=4, lanes=8)
    row = relative_features(store, task, hardware)
    found = dict(zip([column.name for column in columns.RELATIVE], row[0].tolist(), strict=True))
    assert found["units_filled"] == pytest.approx(6 / 8)
    assert found["lanes_filled"] == pytest.approx(4 / 8)
    assert found["units_per_thread"] == pytest.approx(np.log2(6 / 4))
    assert found["vectors_per_register"] == pytest.approx(-1)
    assert found["operations_per_flop"] == pytest.approx(1, abs=1e-3)
    assert found["bytes_per_task_byte"] == pytest.approx(2, abs=1e-3)
    assert found["bytes_per_flop"] == pytest.approx(1, abs=1e-3)
    assert found["bytes_per_operation"] == pytest.approx(0, abs=1e-3)
    assert found["unique_bytes_per_task_byte"] == pytest.approx(0, abs=3e-3)
    assert found["largest_bytes_per_reuse"] == pytest.approx(np.log2(65))
    assert found["bytes_per_reuse"] == pytest.approx(np.log2(65))
    assert found["longest_reuse_distance"] == pytest.approx(np.log2(9))


def test_a_device_without_threads_has_no_share_of_them():
    rows = [np.zeros((1, len(kind)), np.float32) for kind in (columns.STORE, columns.TASK)]
    unknown = np.full((1, len(columns.HARDWARE)), np.nan, np.float32)
    row = relative_features(*rows, unknown)
    names = [column.name for column in columns.RELATIVE]
    known = np.isfinite(row[0])
    assert {name for name, there in zip(names, known, strict=True) if not there} == {
        *("units_filled", "lanes_filled", "units_per_thread", "vectors_per_register")
    }


def test_training_heeds_the_quota_of_a_container(monkeypatch):
    monkeypatch.setattr(gbdt_parameters, "usable_cores", lambda: 1)
    assert GbdtParameters().for_engine(10**6)["nthread"] == 1
    assert LgbmParameters().for_engine(10**6)["num_threads"] == 1


def test_a_programs_row_does_not_depend_on_its_neighbours(examples):
    batch = examples.batch
    some = np.arange(3, 40, 5)
    np.testing.assert_array_equal(flat_features(batch.take(some)), flat_features(batch)[some])


def test_a_row_a_store_is_summed_by_program(examples):
    table = table_of(examples.batch, "sum")
    assert table.rows.shape == (len(examples.batch.stores), len(table_names("sum")))
    counts = np.diff(examples.batch.offsets)
    np.testing.assert_array_equal(table.sums(np.ones(len(table.rows))), counts)
    batch = examples.batch
    context = np.concatenate([batch.trace, batch.task, batch.hardware], axis=1)
    np.testing.assert_array_equal(table.rows[:, -context.shape[1] :], context[table.program])


@pytest.mark.parametrize("name", ["xgb", "lgbm"])
def test_summed_margins_add_up(name, examples):
    """A program of two stores has the product of the scores of two programs of one store each."""
    made = build(name, "quick", 0, {"rounds": 10, "stores": "sum"})
    made.fit(examples, examples)
    batch = examples.batch
    i = int(np.flatnonzero(np.diff(batch.offsets) == 2)[0])
    both = batch.take(np.array([i]))
    apart = replace(batch.take(np.array([i, i])), stores=both.stores, offsets=np.arange(3))
    np.testing.assert_allclose(made.predict(apart).prod(), made.predict(both)[0], rtol=1e-5)


@pytest.mark.parametrize("name", ["xgb", "lgbm"])
def test_an_unknown_table_is_refused(name, examples):
    with pytest.raises(RequestError, match="one of flat, sum"):
        build(name, "quick", 0, {"stores": "loops"}).fit(examples, examples)


@pytest.mark.parametrize("name", ["xgb", "lgbm"])
def test_importance_is_of_the_columns_that_the_latency_follows_from(name, examples):
    made = build(name, "quick", 0, {"rounds": 30, "stores": "sum"})
    made.fit(examples, examples)
    gains = made.importance()
    learnable = {columns.STORE[i].name for i in stores.LEARNABLE}
    best = {key.removeprefix("store.") for key in sorted(gains, key=gains.__getitem__)[-4:]}
    said_otherwise = dict.fromkeys(("vectors_per_register", "lanes_filled"), "vectorize_product")
    assert {said_otherwise.get(name, name) for name in best} == learnable


class TestBags:
    def fitted(self, examples, seed=0, members=1, **values):
        made = build("xgb", "quick", seed, {"rounds": 10, "members": members, **values})
        made.fit(examples, examples)
        return made

    def test_a_bag_has_the_mean_margin_of_its_members(self, examples):
        bag = self.fitted(examples, seed=2, members=3)
        members = [self.fitted(examples, seed) for seed in (6, 7, 8)]
        margins = [np.log(each.predict(examples.batch)) for each in members]
        assert not np.allclose(margins[0], margins[1])
        wanted = np.mean(margins, axis=0)
        np.testing.assert_allclose(np.log(bag.predict(examples.batch)), wanted, atol=1e-5)

    def test_a_bag_of_one_is_the_model_itself(self, examples):
        one, same = self.fitted(examples, seed=5, members=1), self.fitted(examples, seed=5)
        np.testing.assert_array_equal(one.predict(examples.batch), same.predict(examples.batch))

    def test_a_bag_is_saved_explained_and_fine_tuned_as_one_model(self, examples, tmp_path):
        bag = self.fitted(examples, members=2)
        bag.save(tmp_path / "bag")
        assert {path.name for path in (tmp_path / "bag").iterdir()} == {"booster.ubj", "model.json"}
        check_file(tmp_path / "bag" / "booster.ubj")
        loaded = load_model(tmp_path / "bag")
        assert loaded.parameters["members"] == 2
        said = bag.predict(examples.batch)
        np.testing.assert_array_equal(loaded.predict(examples.batch), said)
        assert bag.importance() == loaded.importance() != {}
        tuned = loaded.fine_tune(examples)
        assert not np.allclose(tuned.predict(examples.batch), said)
        np.testing.assert_array_equal(loaded.predict(examples.batch), said)

    def test_a_folder_from_before_bags_is_read(self, examples, tmp_path):
        one = self.fitted(examples)
        one.save(tmp_path / "old")
        head = json.loads((tmp_path / "old" / "model.json").read_text())
        del head["parameters"]["members"]
        (tmp_path / "old" / "model.json").write_text(json.dumps(head))
        said = load_model(tmp_path / "old").predict(examples.batch)
        np.testing.assert_array_equal(said, one.predict(examples.batch))

    def test_rounds_of_members_are_told_one_after_the_other(self, examples):
        epochs = []
        made = build("xgb", "quick", 0, {"rounds": 3, "members": 2})
        made.fit(examples, examples, lambda epoch, figures: epochs.append(epoch))
        assert epochs == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["xgb", "lgbm"])
@pytest.mark.parametrize("chosen", [0, 3])
def test_fine_tuning_splits_on_the_columns_chosen(name, chosen, examples):
    made = build(name, "quick", 0, {"rounds": 10, "fine_tune_columns": chosen})
    made.fit(examples, examples)
    before, after = made.importance(), made.fine_tune(examples).importance()
    best = set(sorted(before, key=before.__getitem__)[-3:])
    changed = {column for column in after if after[column] != before.get(column)}
    assert changed
    assert (changed <= best) == bool(chosen)


@pytest.mark.parametrize("name", ["xgb", "lgbm"])
def test_fine_tuning_twice_gives_the_same_trees(name, examples):
    made = build(name, "quick", 0, {"rounds": 10})
    made.fit(examples, examples)
    first, again = (made.fine_tune(examples).predict(examples.batch) for _ in "12")
    np.testing.assert_array_equal(again, first)


def opposites() -> Examples:
    """Two devices, told apart by one column alone, that order the same programs in reverse."""
    count = 40
    speed = np.tile(np.arange(count), 2)
    trace = np.zeros((2 * count, len(columns.TRACE)), np.float32)
    trace[:, 0] = speed
    hardware = np.full((2 * count, len(columns.HARDWARE)), np.nan, np.float32)
    hardware[:, -1] = np.repeat([1, 3], count)
    none = np.zeros(2 * count + 1, np.int64)
    batch = Batch(
        stores=np.zeros((0, len(columns.STORE)), np.float32),
        offsets=none,
        trace=trace,
        steps=np.zeros((0, WIDTH), np.float32),
        step_offsets=none,
        task=np.zeros((2 * count, len(columns.TASK)), np.float32),
        hardware=hardware,
    )
    latency_s = np.where(hardware[:, -1] == 1, 1.1**speed, 1.1 ** (count - speed))
    names = np.where(hardware[:, -1] == 1, "a", "b").astype(object)
    task, shapes = np.full(2 * count, "task", object), np.full(2 * count, "[[8]]", object)
    return Examples(
        batch=batch,
        latency_s=latency_s,
        task=task,
        device=names,
        operator=task,
        program=speed.astype(str).astype(object),
        shapes=shapes,
    )


@pytest.mark.parametrize("name", ["xgb", "lgbm"])
@pytest.mark.parametrize(("value", "nearest"), [(1.9, "a"), (2.1, "b"), (0.0, "a"), (9.0, "b")])
def test_a_new_device_is_taken_for_the_nearest_known(name, value, nearest):
    known = opposites()
    model = build(name, "quick", 0, {})
    model.fit(known, known)
    own = known.take(np.flatnonzero(known.device == nearest))
    new = replace(own.batch, hardware=np.where(own.batch.hardware > 0, value, np.nan))
    said = model.predict(replace(new, hardware=new.hardware.astype(np.float32)))
    assert (said == model.predict(own.batch)).all()
    assert len(set(said.tolist())) > 1
