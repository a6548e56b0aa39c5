"""What every cost model promises. A new one is an entry in `models.registry` and one in `SMALL`."""

import dataclasses
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stores
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hetfeat.dataset.splits import split_examples
from hetfeat.errors import DataError, RequestError
from hetfeat.features.assemble import assemble, batch_of
from hetfeat.features.batch import Examples
from hetfeat.models.base import CostModel
from hetfeat.models.evaluate import evaluate
from hetfeat.models.hyperparameters import SPACES, build
from hetfeat.models.native_child import check_file
from hetfeat.models.registry import MODELS, load_model, model_class
from hetfeat.testing.models import ModelConformance
from hetfeat.transfer.finetune import mean_pca
from hetfeat.transfer.gate import OwnSide
from registry.files.pickle_check import looks_like_pickle

SMALL: dict[str, dict[str, Any]] = {
    "xgb": {"rounds": 40},
    "lgbm": {"rounds": 40},
    "mlp": {"rounds": 15, "width": 64, "batch": 4, "fine_tune_rate": 3e-3},
    "attention": {"rounds": 10, "width": 32, "batch": 4, "fine_tune_rate": 3e-3},
}
"""Settings with which each learns in a second or two."""

TINY: dict[str, dict[str, Any]] = {
    "xgb": {"rounds": 5, "stores": "sum"},
    "lgbm": {"rounds": 5, "stores": "sum"},
    "mlp": {"rounds": 1, "width": 16},
    "attention": {"rounds": 1, "width": 8, "layers": 1},
}
FILES = {
    "xgb": "booster.ubj",
    "lgbm": "booster.txt",
    "mlp": "weights.safetensors",
    "attention": "weights.safetensors",
}
NETWORKS = {"mlp", "attention"}
KINDS = [pytest.param(name, marks=[pytest.mark.slow] * (name in NETWORKS)) for name in MODELS]
"""Each model; networks take many times as long as trees."""

ROUNDING = 1e-4
"""Sums of a network in float32 depend on how many programs are scored at once."""


def small(name: str, seed: int = 0, **changed: Any) -> CostModel:
    return build(name, "quick", seed, SMALL[name] | changed)


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> Examples:
    return assemble(stores.make_store(tmp_path_factory.mktemp("records") / "s", tasks=24)).examples


@pytest.fixture(scope="module")
def sides(examples) -> tuple[Examples, Examples, Examples]:
    split = split_examples(examples, "by_task", 1)
    return tuple(examples.take(side) for side in (split.train, split.valid, split.test))


@pytest.fixture(scope="module", params=KINDS)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def model(name, sides) -> CostModel:
    made = small(name)
    made.fit(sides[0], sides[1])
    return made


@pytest.fixture
def saved(model, tmp_path) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


def rows(examples: Examples, wanted: np.ndarray) -> Examples:
    return examples.take(np.flatnonzero(wanted))


class TestConformance(ModelConformance):
    """Of every model of the table."""

    @pytest.fixture(scope="class", params=KINDS)
    @classmethod
    def kind(cls, request) -> str:
        return request.param

    @pytest.fixture(scope="class")
    @classmethod
    def untrained(cls, kind):
        return lambda seed=0: small(kind, seed)


def test_it_learns_what_the_latencies_follow_from(model, sides):
    found = evaluate(model, *sides, {"small_net": {stores.task(n).hash: 1 for n in range(24)}})
    assert found.metrics["pca"] > 0.75
    for name in ("pca", "pca_tenset", f"pca_tenset_on.{sides[2].device[0]}"):
        low, value, high = (found.metrics[f"{name}{end}"] for end in (".low", "", ".high"))
        assert low < value < high
    assert np.corrcoef(found.estimate, found.y)[0, 1] > 0.5
    assert 0.4 < found.baselines["random"]["pca"] < 0.6
    assert found.baselines["constant"]["pca"] == 0.5
    assert 0 < found.metrics["top1_networks_ratio_of_sums"] <= 1
    assert set(found.operator_rmse) == set(sides[2].operator)


def test_every_model_has_settings_to_search_and_a_row_here():
    assert set(MODELS) == set(SMALL) == set(TINY) == set(SPACES) == set(FILES)


def test_same_seed_same_model(name, model, sides):
    again, other = small(name), small(name, seed=1)
    again.fit(sides[0], sides[1])
    other.fit(sides[0], sides[1])
    scores = model.predict(sides[2].batch)
    np.testing.assert_array_equal(again.predict(sides[2].batch), scores)
    assert (other.predict(sides[2].batch) != scores).any()


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**31 - 1), effort=st.sampled_from(["quick", "full"]), data=st.data())
def test_save_and_load_give_equal_predictions(name, sides, tmp_path, seed, effort, data):
    made = build(name, effort, seed, TINY[name])
    made.fit(sides[0], sides[1])
    folder = tmp_path / f"{seed}-{effort}"
    shutil.rmtree(folder, ignore_errors=True)
    made.save(folder)
    loaded = load_model(folder)
    part = sides[2].take(
        np.array(data.draw(st.lists(st.integers(0, len(sides[2]) - 1)))).astype(int)
    )
    scores = made.predict(part.batch, sides[1])
    np.testing.assert_array_equal(loaded.predict(part.batch, sides[1]), scores)
    np.testing.assert_array_equal(loaded.calibrate(scores), made.calibrate(scores))
    assert loaded.parameters == made.parameters
    assert loaded.seen == made.seen
    assert loaded.seen_anchors == made.seen_anchors
    by_task, by_anchor = (
        {device: sum(counts.values()) for device, counts in seen.items()}
        for seen in (made.seen, made.seen_anchors)
    )
    assert by_anchor == by_task


def test_it_knows_how_well_it_orders_its_valid_side(model, saved, sides):
    found = mean_pca(model.predict(sides[1].batch), sides[1])
    assert model.valid_pca == pytest.approx(found)
    own = OwnSide.of(model)
    assert own is not None and not own.is_at_chance()
    assert own == OwnSide.of(load_model(saved)) == OwnSide.of(model.fine_tune(sides[2]))


def test_a_model_that_orders_nothing_knows_it(name, sides):
    rng = np.random.default_rng(0)

    def shuffled(side):
        latency_s = side.latency_s.copy()
        for task in np.unique(side.task):
            rows = np.flatnonzero(side.task == task)
            latency_s[rows] = latency_s[rng.permutation(rows)]
        return dataclasses.replace(side, latency_s=latency_s)

    made = small(name)
    made.fit(shuffled(sides[0]), shuffled(sides[1]))
    assert OwnSide.of(made).is_at_chance()


def test_a_folder_that_does_not_say_how_well_it_orders_is_read(saved):
    head = json.loads((saved / "model.json").read_text())
    del head["valid_pca"], head["chance_error"]
    (saved / "model.json").write_text(json.dumps(head))
    assert OwnSide.of(load_model(saved)) is None


def test_loaded_in_another_process_without_pickle_it_predicts_the_same(saved, model, project):
    program = """
import sys
from pathlib import Path
import stores
from hetfeat.features.assemble import batch_of
from hetfeat.models.registry import load_model
import pickle
def forbidden(*_, **__):
    raise AssertionError("something is unpickled")
pickle.load = pickle.loads = pickle.Unpickler = forbidden
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
    scores = [float(score) for score in done.stdout.split(",")]
    np.testing.assert_allclose(scores, model.predict(batch), rtol=ROUNDING)


def test_the_folder_holds_json_and_one_file_in_a_format_of_its_own(name, saved):
    assert sorted(path.name for path in saved.iterdir()) == sorted([FILES[name], "model.json"])
    assert not any(looks_like_pickle(path) for path in saved.iterdir())
    head = json.loads((saved / "model.json").read_text())
    assert head["model"] == name
    assert len(head["columns"]["store"]) == 164


def test_trees_of_ours_pass_the_child(saved):
    for path in (path for path in saved.iterdir() if path.suffix in (".ubj", ".txt")):
        check_file(path)


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


def own_file(saved: Path) -> Path:
    (found,) = (path for path in saved.iterdir() if path.name != "model.json")
    return found


def own_file_holds(saved: Path, data: bytes) -> None:
    """As if it had been saved so."""
    own_file(saved).write_bytes(data)
    change(saved, files={own_file(saved).name: hashlib.sha256(data).hexdigest()})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: own_file(f).write_bytes(b"{}"), "missing or changed"),
        (lambda f: own_file(f).unlink(), "missing or changed"),
        (lambda f: own_file_holds(f, b"{}"), "do not fit together|is not parsed"),
        (lambda f: (f / "model.json").write_text("{"), "model.json of model"),
        (lambda f: (f / "model.json").write_text("[]"), "model.json of model"),
        (lambda f: change(f, format=99), "format 99"),
        (lambda f: change(f, model="oracle"), "model 'oracle'"),
        (lambda f: change(f, calibration={}), "calibration.score"),
        (lambda f: change(f, parameters={"depth": 3}), "do not fit together"),
        (lambda f: change(f, files={"../outside": "0"}), "files"),
        (lambda f: change(f, files={}), "do not fit together"),
        (lambda f: change(f, parameters={"rounds": "3"}), "do not fit together"),
        (lambda f: change(f, seen={"a": {"b": -1}}), "seen.a.b"),
        (lambda f: change(f, valid_pca=float("nan")), "valid_pca"),
        (lambda f: change(f, chance_error=0.0), "chance_error"),
        (lambda f: change(f, calibration={"score": [1.0], "y": []}), "calibration"),
        (lambda f: (f / "model.json").write_text("[" * 4000), "model.json of model"),
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


def test_a_fine_tuned_model_saves_and_loads(model, sides, tmp_path):
    adapted = model.fine_tune(sides[2])
    adapted.save(tmp_path / "adapted")
    np.testing.assert_array_equal(
        load_model(tmp_path / "adapted").predict(sides[0].batch), adapted.predict(sides[0].batch)
    )


def spoilt(examples: Examples, part: str) -> Examples:
    if part == "latency":
        wrong = examples.latency_s.copy()
        wrong[0] = 0.0
        return dataclasses.replace(examples, latency_s=wrong)
    values = getattr(examples.batch, part).copy()
    values[0, 0] = np.nan
    return dataclasses.replace(
        examples, batch=dataclasses.replace(examples.batch, **{part: values})
    )


@pytest.mark.parametrize(
    ("part", "said"),
    [("latency", "not positive"), ("stores", "not finite"), ("task", "not finite")],
)
def test_records_that_cannot_be_right_are_refused(name, model, sides, part, said):
    wrong = spoilt(sides[0], part)
    for learn in (lambda: small(name).fit(wrong, sides[1]), lambda: model.fine_tune(wrong)):
        with pytest.raises(DataError, match=said):
            learn()


def test_failed_programs_are_learnt_as_the_slowest(name, sides):
    """A NaN label is a failure; here one can be told beforehand by its features."""
    doomed = sides[0].batch.stores[sides[0].batch.offsets[:-1], stores.LEARNABLE[0]] > 4
    train = dataclasses.replace(sides[0], latency_s=np.where(doomed, np.nan, sides[0].latency_s))
    made = small(name)
    made.fit(train, sides[1])
    scores = made.predict(train.batch)
    assert np.isfinite(scores).all()
    assert np.median(scores[doomed]) < np.median(scores[~doomed])


def test_programs_known_by_their_traces_alone_are_learnt_from(name, tmp_path):
    """As other schedulers' records are: what decides is how a loop was split."""
    store = stores.make_traced_store(tmp_path / "s", tasks=6, per_task=32)
    examples = assemble(store).examples
    assert not len(examples.batch.stores)
    split = split_examples(examples, "by_task", 0)
    sides = [examples.take(side) for side in (split.train, split.valid, split.test)]
    made = build(name, "quick", 0, {})
    made.fit(*sides[:2])
    made.save(tmp_path / "model")
    for model in (made, load_model(tmp_path / "model")):
        found = evaluate(model, *sides)
        assert found.metrics["pca"] > 0.9


def test_stores_mean_nothing_to_a_model_that_learnt_without(name, tmp_path):
    examples = assemble(stores.make_traced_store(tmp_path / "s", tasks=6, per_task=32)).examples
    made = build(name, "quick", 0, {})
    made.fit(examples, examples)
    made.save(tmp_path / "model")
    batch = batch_of(stores.programs(stores.task(1), 4, seed=1), stores.profile("a"))
    for model in (made, load_model(tmp_path / "model")):
        assert model.with_stores is False
        scores = model.predict(batch)
        np.testing.assert_array_equal(scores, model.predict(batch.without_stores()))


def test_an_unknown_model_is_refused():
    with pytest.raises(RequestError, match="one of xgb, lgbm"):
        model_class("oracle")


def test_the_space_of_hpo_is_of_settings_that_there_are(name):
    made = model_class(name).for_effort("quick", 0)
    assert set(SPACES[name]) <= set(made.parameters)
    for key, space in SPACES[name].items():
        for value in getattr(space, "values", ()) or (space.low, space.high):
            assert build(name, "quick", 0, {key: value}).parameters[key] == value
