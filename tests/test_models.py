import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import stores
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hetfeat.dataset.splits import split_examples
from hetfeat.errors import DataError, RequestError
from hetfeat.features import columns
from hetfeat.features.assemble import assemble, batch_of
from hetfeat.features.batch import Batch, Examples
from hetfeat.models.aggregate import flat_features, flat_names
from hetfeat.models.calibration import fit_calibration
from hetfeat.models.evaluate import evaluate
from hetfeat.models.gbdt import GbdtParameters, XgbModel
from hetfeat.models.labels import best_latencies, labels
from hetfeat.models.objective import objective_of
from hetfeat.models.pairs import pairs_of
from hetfeat.models.table import load_model, model_class

QUICK = GbdtParameters(rounds=40)


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> Examples:
    return assemble(stores.make_store(tmp_path_factory.mktemp("records") / "s", tasks=24)).examples


@pytest.fixture(scope="module")
def sides(examples) -> tuple[Examples, Examples, Examples]:
    split = split_examples(examples, "by_task", 1)
    return tuple(examples.take(side) for side in (split.train, split.valid, split.test))


@pytest.fixture(scope="module")
def model(sides) -> XgbModel:
    made = XgbModel(QUICK)
    made.fit(sides[0], sides[1])
    return made


@pytest.fixture
def saved(model, tmp_path) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


def rows(examples: Examples, wanted: np.ndarray) -> Examples:
    return examples.take(np.flatnonzero(wanted))


def test_it_learns_what_the_latencies_follow_from(model, sides):
    found = evaluate(model, *sides, {"small_net": {stores.task(n).hash: 1 for n in range(24)}})
    assert found.metrics["pca"] > 0.75
    assert found.metrics["rmse"] < found.baselines["constant"]["rmse"]
    assert 0.4 < found.baselines["random"]["pca"] < 0.6
    assert found.baselines["constant"]["pca"] == 0.5
    assert 0 < found.metrics["top1_networks_ratio_of_sums"] <= 1
    assert set(found.operator_rmse) == set(sides[2].operator)


def test_labels_use_the_best_of_the_examples_named_only(examples):
    part = rows(examples, examples.task == stores.task(0).hash)
    y = labels(part, best_latencies(part))
    failed = np.isnan(part.latency_s)
    assert (y[failed] == 0).all()
    assert failed.sum() == 2
    for device in ("a", "b"):
        assert y[part.device == device].max() == 1
    slower = rows(part, part.latency_s > np.nanmin(part.latency_s) * 1.2)
    assert labels(slower, best_latencies(slower)).max() == 1


def test_scores_are_positive_and_follow_order(model, sides):
    scores = model.predict(sides[2].batch)
    assert scores.dtype == np.float64
    assert (scores > 0).all()
    backwards = np.arange(len(scores))[::-1].copy()
    np.testing.assert_array_equal(model.predict(sides[2].batch.take(backwards)), scores[::-1])


def test_no_programs_have_no_scores(model):
    assert model.predict(batch_of([], stores.profile("a"))).shape == (0,)


def test_calibrated_scores_are_shares(model, sides):
    estimates = model.calibrate(model.predict(sides[2].batch))
    assert estimates.min() >= 0
    assert estimates.max() <= 1


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.floats(1e-6, 1e6), st.floats(0, 1)), min_size=1))
def test_calibration_never_falls(points):
    scores, y = (np.array(column) for column in zip(*points, strict=True))
    estimates = fit_calibration(scores, y)(np.sort(scores))
    assert (np.diff(estimates) >= -1e-12).all()
    assert y.min() - 1e-9 <= estimates.min()
    assert estimates.max() <= y.max() + 1e-9


def test_same_seed_same_model(model, sides):
    again, other = XgbModel(QUICK), XgbModel(GbdtParameters(rounds=40, seed=1))
    again.fit(sides[0], sides[1])
    other.fit(sides[0], sides[1])
    scores = model.predict(sides[2].batch)
    np.testing.assert_array_equal(again.predict(sides[2].batch), scores)
    assert (other.predict(sides[2].batch) != scores).any()


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**31 - 1), depth=st.integers(1, 8), count=st.integers(0, 30))
def test_save_and_load_give_equal_predictions(sides, tmp_path, seed, depth, count):
    made = XgbModel(GbdtParameters(rounds=5, seed=seed, max_depth=depth))
    made.fit(sides[0], sides[1])
    folder = tmp_path / f"{seed}-{depth}-{count}"
    shutil.rmtree(folder, ignore_errors=True)
    made.save(folder)
    loaded = load_model(folder)
    part = sides[2].take(np.arange(min(count, len(sides[2]))))
    np.testing.assert_array_equal(loaded.predict(part.batch), made.predict(part.batch))
    scores = made.predict(part.batch)
    np.testing.assert_array_equal(loaded.calibrate(scores), made.calibrate(scores))
    assert loaded.parameters == made.parameters


def test_loaded_in_another_process_it_predicts_the_same(saved, model, project):
    program = """
import sys
from pathlib import Path
import stores
from hetfeat.features.assemble import batch_of
from hetfeat.models.table import load_model
programs = stores.programs(stores.task(3), 20, seed=5)
scores = load_model(Path(sys.argv[1])).predict(batch_of(programs, stores.profile("a")))
print(",".join(map(repr, scores.tolist())))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(saved)],
        env={"PYTHONPATH": f"{project}:{project / 'tests'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    batch = batch_of(stores.programs(stores.task(3), 20, seed=5), stores.profile("a"))
    assert [float(score) for score in done.stdout.split(",")] == model.predict(batch).tolist()


def test_the_folder_holds_json_and_a_booster(saved):
    assert sorted(path.name for path in saved.iterdir()) == ["booster.ubj", "model.json"]
    head = json.loads((saved / "model.json").read_text())
    assert head["model"] == "xgb"
    assert len(head["columns"]["store"]) == 164


def change(saved: Path, **values) -> None:
    head = json.loads((saved / "model.json").read_text())
    (saved / "model.json").write_text(json.dumps({**head, **values}))


def columns_of(saved: Path) -> dict[str, list[str]]:
    return json.loads((saved / "model.json").read_text())["columns"]


def test_other_features_are_refused_by_name(saved):
    columns = columns_of(saved)
    columns["hardware"][0] = "clock_ghz@1"
    change(saved, columns=columns)
    with pytest.raises(DataError, match="clock_ghz@1"):
        load_model(saved)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: (f / "booster.ubj").write_bytes(b"{}"), "missing or changed"),
        (lambda f: (f / "booster.ubj").unlink(), "missing or changed"),
        (lambda f: (f / "model.json").write_text("{"), "readable model.json"),
        (lambda f: (f / "model.json").write_text("[]"), "readable model.json"),
        (lambda f: change(f, format=99), "format 99"),
        (lambda f: change(f, model="oracle"), "model 'oracle'"),
        (lambda f: change(f, calibration={}), "do not fit together"),
        (lambda f: change(f, parameters={"depth": 3}), "do not fit together"),
        (lambda f: change(f, files={"../outside": "0"}), "missing or changed"),
        (lambda f: change(f, files={}), "do not fit together"),
    ],
)
def test_a_damaged_folder_is_refused(saved, damage, said):
    damage(saved)
    with pytest.raises(RequestError, match=said):
        load_model(saved)


def test_a_folder_in_use_is_not_written_to(model, saved):
    before = (saved / "model.json").read_bytes()
    with pytest.raises(DataError, match="an empty folder"):
        model.save(saved)
    assert (saved / "model.json").read_bytes() == before


def test_an_interrupted_save_leaves_nothing(model, tmp_path, monkeypatch):
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_fine_tuning_adapts_a_copy(model, sides):
    test = sides[2]
    part = rows(test, test.device == "a")
    reversed_speed = Examples(
        part.batch, 1 / part.latency_s, part.task, part.device, part.operator, part.program,
        part.shapes,
    )  # fmt: skip
    before = model.predict(part.batch)
    adapted = model.fine_tune(reversed_speed)
    np.testing.assert_array_equal(model.predict(part.batch), before)
    valid = np.isfinite(part.latency_s)
    speed = 1 / reversed_speed.latency_s[valid]

    def agreement(scores):
        return np.corrcoef(scores[valid], speed)[0, 1]

    assert agreement(adapted.predict(part.batch)) > agreement(before) + 0.1


def test_fine_tuning_on_nothing_to_compare_changes_nothing(model, sides):
    one = sides[2].take(np.arange(1))
    adapted = model.fine_tune(one)
    assert adapted is not model
    np.testing.assert_array_equal(adapted.predict(sides[2].batch), model.predict(sides[2].batch))


def test_a_fine_tuned_model_saves_and_loads(model, sides, tmp_path):
    adapted = model.fine_tune(sides[2])
    adapted.save(tmp_path / "adapted")
    np.testing.assert_array_equal(
        load_model(tmp_path / "adapted").predict(sides[0].batch), adapted.predict(sides[0].batch)
    )


def constant(examples: Examples) -> Examples:
    same = np.full(len(examples), 1e-3)
    return Examples(
        examples.batch, same, examples.task, examples.device, examples.operator,
        examples.program, examples.shapes,
    )  # fmt: skip


@pytest.mark.parametrize("spoil", [lambda e: e.take(np.arange(0)), constant])
def test_sides_with_nothing_to_learn_are_refused(sides, spoil):
    with pytest.raises(DataError, match="a train side"):
        XgbModel(QUICK).fit(spoil(sides[0]), sides[1])
    with pytest.raises(DataError, match="a valid side"):
        XgbModel(QUICK).fit(sides[0], spoil(sides[1]))


def test_one_task_is_enough_to_fit(sides):
    one = rows(sides[0], sides[0].task == sides[0].task[0])
    made = XgbModel(QUICK)
    made.fit(one, sides[1])
    assert np.isfinite(made.predict(sides[2].batch)).all()


def test_an_untrained_model_says_so(sides):
    with pytest.raises(DataError, match="untrained"):
        XgbModel().predict(sides[0].batch)


def test_an_unknown_model_is_refused():
    with pytest.raises(RequestError, match="one of xgb"):
        model_class("oracle")


def test_pairs_stay_inside_a_task_on_a_device(examples):
    pairs = pairs_of(examples)
    assert len(pairs) > 100
    for column in (examples.task, examples.device):
        assert (column[pairs.faster] == column[pairs.slower]).all()
    slowness = np.nan_to_num(examples.latency_s, nan=np.inf)
    assert (slowness[pairs.slower] >= slowness[pairs.faster] * 1.05).all()


def test_pairs_of_a_large_task_are_drawn(tmp_path):
    store = stores.make_store(tmp_path / "s", devices=("a",), tasks=1, per_task=400)
    examples = assemble(store).examples
    pairs = pairs_of(examples)
    assert 0 < len(pairs) < 400 * 399 / 4
    assert (examples.latency_s[pairs.faster] * 1.05 <= examples.latency_s[pairs.slower]).sum() > 0


def test_gradients_are_those_of_the_loss(sides):
    """Against finite differences, for each part of the loss alone."""
    part = sides[1].take(np.arange(24))
    margins = np.random.default_rng(0).normal(size=24)
    for point_weight in (0.0, 1.0):
        objective = objective_of(part, best_latencies(part), point_weight, 0)
        assert objective is not None
        gradient, hessian = objective.gradient(margins)
        steps = [
            (objective.loss(margins + step) - objective.loss(margins - step)) / 2e-5
            for step in np.eye(24) * 1e-5
        ]
        scale = np.abs(gradient).sum() / np.abs(steps).sum()
        np.testing.assert_allclose(gradient, np.array(steps) * scale, atol=1e-5 * scale)
        assert (hessian > 0).all()


def test_flat_columns_fold_the_stores():
    """By hand: two programs, the first of two stores, and one without any."""
    stores_of = np.zeros((3, 164), np.float32)
    stores_of[:, 2] = [1, 3, 2]  # float_mul: the second store computes most
    stores_of[:, 17] = [3, 1, 4]  # vectorize_product: 7 + 1 = 8
    batch = Batch(
        stores_of,
        np.array([0, 2, 2, 3]),
        np.ones((3, len(columns.TASK)), np.float32),
        np.full((3, len(columns.HARDWARE)), 2, np.float32),
    )
    flat = dict(zip(flat_names(), flat_features(batch).T.tolist(), strict=True))
    assert flat["main.vectorize_product"] == [1, 0, 4]
    assert flat["total.vectorize_product"] == pytest.approx([np.log2(9), 0, 4])
    assert flat["task.flops"] == [1, 1, 1]
    assert flat["hardware.threads"] == [2, 2, 2]


def test_a_programs_row_does_not_depend_on_its_neighbours(examples):
    batch = examples.batch
    some = np.arange(3, 40, 5)
    np.testing.assert_array_equal(flat_features(batch.take(some)), flat_features(batch)[some])
