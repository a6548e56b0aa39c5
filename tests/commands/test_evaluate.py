"""`hetfeat evaluate`: the figures of a stored model on records."""

from types import SimpleNamespace

import adapting
import numpy as np
import pytest
import stores

from hetfeat.dataset.splits import split_examples
from hetfeat.features.assemble import assemble
from hetfeat.models.evaluate import evaluate
from hetfeat.models.gbdt import XgbModel
from registry.jobs.train import TrainingRequest, load_data


@pytest.fixture
def model(registry_here):
    """A registered model of device `a`, beside records of `a` and `b`."""
    store = stores.make_store(registry_here / "records")
    made = adapting.source_model(assemble(store).examples)
    adapting.registered(made, "costmodel.cpu-x86", registry_here / "model")
    return made


def test_version_and_folder_have_the_same_figures(model, registry_here, capfd):
    on = ("--records", "records", "--device", "b")
    by_uri = adapting.succeed(capfd, "evaluate", "--model", "models:/costmodel.cpu-x86/1", *on)
    by_folder = adapting.succeed(capfd, "evaluate", "--model", "model", *on)
    assert by_uri["metrics"] == by_folder["metrics"]
    assert by_uri["model"] == "models:/costmodel.cpu-x86/1"
    assert (by_uri["records"], by_uri["seen_records"], by_uri["devices"]) == (108, 0, ["b"])


def test_figures_are_those_of_training(model, registry_here, capfd):
    from hetfeat.dataset.store import RecordStore

    examples = assemble(RecordStore.open(registry_here / "records")).examples
    own = examples.take(np.flatnonzero(examples.device == "b"))
    expected = evaluate(model, own, own, own).metrics
    found = adapting.succeed(
        capfd, "evaluate", "--model", "model", "--records", "records", "--device", "b"
    )
    for name in ("pca", "rmse", "r2", "top1", "top5"):
        assert found["metrics"][name] == pytest.approx(expected[name])


def test_every_task_on_request(model, capfd):
    found = adapting.succeed(
        capfd, "evaluate", "--model", "model", "--records", "records", "--per-task", "true"
    )
    assert len(found["tasks"]) == 18
    assert found["seen_records"] == 2 * 108, "fitted and validated on the same records"
    values = [row["pca"] for row in found["tasks"]]
    assert np.mean(values) == pytest.approx(found["metrics"]["pca"])
    assert {row["programs"] for row in found["tasks"]} == {12}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "model", "--records", "records", "--device", "z"), "(a, b)"),
        (("--model", "records", "--records", "records"), "a model's folder"),
        (("--model", "models:/none/1", "--records", "records"), "model 'none'"),
        (("--model", "model", "--records", "nowhere"), "store.json"),
        (("--records", "records"), "--model"),
    ],
)
def test_wrong_requests_are_one_line(model, capfd, arguments, said):
    assert said in adapting.refuse(capfd, "evaluate", *arguments)


def test_tasks_that_no_training_device_has_seen_have_a_figure_of_their_own(tmp_path):
    examples = assemble(stores.make_store(tmp_path / "s")).examples
    networks = {"part": {stores.task(0).hash: 1, stores.task(4).hash: 1}}
    found = {}
    for holdout in (("b",), ("b", "part")):
        split = split_examples(examples, "by_target", 0, holdout, networks)
        sides = [examples.take(side) for side in (split.train, split.valid, split.test)]
        model = XgbModel.for_effort("quick", 0)
        model.fit(*sides[:2])
        found[holdout] = evaluate(model, *sides).metrics
    assert "pca_new_tasks" not in found["b",]
    assert found["b", "part"]["new_tasks"] == 2
    assert 0.5 < found["b", "part"]["pca_new_tasks"] <= 1
    assert found["b", "part"]["pca_tasks"] == found["b",]["pca_tasks"] == 9


def test_each_device_is_judged_by_its_own_pairs(tmp_path):
    """Scores that are right on `a` and turned round on `b`."""
    own = assemble(stores.make_store(tmp_path / "s")).examples
    slowness = np.nan_to_num(own.latency_s, nan=1.0)
    scores = np.where(own.device == "a", 1 / slowness, slowness)
    model = SimpleNamespace(predict=lambda batch: scores, calibrate=lambda s: np.clip(s, 0, 1))
    found = evaluate(model, own, own, own, pairs_to_judge=1).metrics
    assert (found["pca_on.a"], found["pca_on.b"]) == (1.0, pytest.approx(0.0, abs=0.2))
    assert found["worst_device_pca"] == found["pca_on.b"]


def test_a_device_without_stores_beside_those_that_have_them(model, registry_here, capfd, caplog):
    """Its programs are known by their traces alone, by which this model tells nothing."""
    bare = stores.make_traced_store(registry_here / "records", tasks=3, per_task=12, device="c")
    assert bare.measured_devices() == {"a", "b", "c"}
    line = ("evaluate", "--model", "model", "--records", "records", "--device")
    assert "per-store features" in adapting.refuse(capfd, *line, "c")
    assert "(a, b, c)" in adapting.refuse(capfd, *line, "d")
    assert adapting.succeed(capfd, *line, "b")["records"] == 108
    wanted = TrainingRequest(bare.path, None, "xgb", "by_task", (), "quick", 0)
    assert set(load_data(wanted).train.device.tolist()) == {"a", "b"}
    assert "no record of c has per-store features" in caplog.text
