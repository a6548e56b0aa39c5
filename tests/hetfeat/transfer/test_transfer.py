"""`hetfeat transfer`: a source that helps is kept, one that does not is dropped."""

import dataclasses
import shutil
from contextlib import nullcontext
from types import SimpleNamespace

import adapting
import numpy as np
import pytest
import stores

from hetfeat.dataset.store import RecordStore
from hetfeat.errors import DataError, RequestError
from hetfeat.features.assemble import assemble
from hetfeat.models.hyperparameters import build
from hetfeat.transfer.finetune import (
    LEAST_BUDGET,
    TOGETHER,
    FineTuneOptions,
    adapt,
    cross_validated,
    few_shot,
    fine_tuned,
    strongest,
    tuned_pca,
)
from hetfeat.transfer.gate import GateOptions, OwnSide, decide
from hetfeat.transfer.joint import JointOptions, learnt_together, refuse_no_trees
from hetfeat.transfer.selection import heaviest, on_columns
from registry.files.moves import promote
from registry.files.pull import fetch
from registry.jobs import transfer_records
from registry.jobs.transfer_records import (
    Division,
    LiveMeasurement,
    ReplayedRecords,
    divided_records,
    kept_folder,
)
from registry.models.gates import StandardGates
from registry.models.lineage import lineage
from registry.models.mlflow_client import connect
from registry.models.versions import resolve
from registry.tracking import command_run

SOURCE = "models:/costmodel.cpu-x86@production"
TARGET = "costmodel.cpu-x86.b"
NAMED = ("--records", "records", "--device", "b")


@pytest.fixture
def examples(tmp_path):
    return assemble(stores.make_store(tmp_path / "store", per_task=14)).examples


@pytest.fixture
def on_b(examples):
    return examples.take(np.flatnonzero(examples.device == "b"))


@pytest.fixture
def registry(registry_here, examples):
    """A folder whose registry has a good source in production and a useless one."""
    stores.make_store(registry_here / "records", per_task=14)
    good = adapting.registered(
        adapting.source_model(examples), "costmodel.cpu-x86", registry_here / "good"
    )
    client = connect()
    promote(good.name, good.version, "production", gates=lambda *_: [])
    adapting.registered(
        adapting.source_model(examples, shuffled=True), "costmodel.useless", registry_here / "bad"
    )
    return client


def test_measured_and_tested_never_share_a_program(on_b):
    data = few_shot(on_b, 8, seed=0)
    measured, test = set(data.measured.program.tolist()), set(data.test.program.tolist())
    assert not measured & test
    assert len(measured) + len(test) == len(on_b)
    for task in set(on_b.task.tolist()):
        rows = data.measured.task == task
        assert np.count_nonzero(rows) == 8
        assert sorted(data.fold[rows].tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_choice_follows_the_seed(on_b):
    first, again, other = (few_shot(on_b, 6, seed) for seed in (1, 1, 2))
    assert first.measured.program.tolist() == again.measured.program.tolist()
    assert first.measured.program.tolist() != other.measured.program.tolist()


@pytest.mark.parametrize(("budget", "said"), [(14, "at most 12"), (1, f"at least {LEAST_BUDGET}")])
def test_a_budget_that_leaves_nothing_is_refused(on_b, budget, said):
    with pytest.raises(DataError, match=said):
        few_shot(on_b, budget, seed=0)


@pytest.mark.parametrize("rounds", [0, 30])
def test_a_model_that_is_transferred_goes_on_learning_as_its_source_would(examples, on_b, rounds):
    source = adapting.source_model(examples)
    tuned = fine_tuned(source, on_b, rounds)
    assert tuned.settings == source.settings
    later = tuned.fine_tune(on_b).predict(on_b.batch)
    assert (later != tuned.predict(on_b.batch)).any()


@pytest.mark.parametrize("shuffled", [False, True])
def test_more_rounds_are_tried_where_the_most_were_best(examples, on_b, shuffled):
    options = FineTuneOptions(strengths=(0, 10, 40), stronger=50)
    data = few_shot(on_b, 12, seed=0)
    tried = tuned_pca(adapting.source_model(examples, shuffled), data, options)
    best = strongest({rounds: tried[rounds] for rounds in options.strengths})
    assert (50 in tried) == (best == 40) == shuffled


def test_scores_of_the_models_of_two_folds_are_compared_without_their_offset(on_b):
    """Each model is right of its fold's programs, and as a whole far from the next one's."""
    data = few_shot(on_b, 8, seed=0)
    right = 1 / np.nan_to_num(data.measured.latency_s, nan=1.0)
    offsets = iter(np.exp(10.0 * np.arange(data.folds)))

    def learn(train, valid):
        scores = next(offsets) * right
        return SimpleNamespace(predict=lambda batch: scores)

    assert cross_validated(data, learn) == pytest.approx(1)


def test_one_training_of_both_knows_what_each_has_taught(examples, on_b):
    taught = examples.take(np.flatnonzero(examples.device == "a"))
    measured = few_shot(on_b, 6, seed=0).measured
    source = adapting.source_model(examples)
    options = JointOptions(programs_per_task=5, repeats=3, rounds=20)
    model = learnt_together(source, "xgb", taught, measured, "quick", 0, options)
    assert {d: sum(tasks.values()) for d, tasks in model.seen.items()} == {"a": 45, "b": 54}
    assert model.valid_pca is None and model.parameters["rounds"] == 20
    bare = dataclasses.replace(measured, batch=measured.batch.loaded().without_stores())
    assert not learnt_together(source, "xgb", taught, bare, "quick", 0, options).with_stores
    with pytest.raises(RequestError, match="xgb or lgbm"):
        refuse_no_trees(build("mlp", "quick", 0, {}))


def test_what_orders_the_measured_best_is_the_device_s_model(examples, on_b):
    """Labels of the source are shuffled, its records are sound: both together know more."""
    taught = examples.take(np.flatnonzero(examples.device == "a"))
    useless, data = adapting.source_model(examples, shuffled=True), few_shot(on_b, 8, seed=0)
    options = FineTuneOptions(strengths=(0,))
    alone = adapt(useless, "xgb", data, "quick", 0, fine_tuning=options)
    both = adapt(
        useless, "xgb", data, "quick", 0, taught=taught, fine_tuning=options,
        joint=JointOptions(repeats=2, rounds=20),
    )  # fmt: skip
    assert (both.way, both.rounds) == (TOGETHER, 0) != (alone.way, alone.rounds)
    assert both.pca["transfer"] > alone.pca["transfer"]


def test_the_parts_of_the_cross_validation_are_an_argument(on_b):
    assert few_shot(on_b, 12, seed=0).folds == 4
    assert few_shot(on_b, 12, seed=0, most_folds=3).folds == 3


def test_only_selected_tasks_are_measured_and_all_are_tested(on_b):
    selected = {stores.task(2).hash, stores.task(5).hash}
    data = few_shot(on_b, 6, seed=0, tasks=selected)
    assert set(data.measured.task.tolist()) == selected
    assert set(data.test.task.tolist()) == set(on_b.task.tolist())
    assert len(data.measured) + len(data.test) == len(on_b)


def test_selected_tasks_may_be_measured_as_a_whole(on_b):
    heavy = np.flatnonzero(on_b.task == stores.task(2).hash)
    cut = on_b.take(np.setdiff1d(np.arange(len(on_b)), heavy[6:]))
    data = few_shot(cut, 6, seed=0, tasks={stores.task(2).hash})
    assert len(data.measured) == 6
    assert stores.task(2).hash not in data.test.task
    with pytest.raises(DataError, match="at most 4"):
        few_shot(on_b.take(heavy[:6]), 6, seed=0, tasks={stores.task(2).hash})


def test_of_a_store_with_other_records_only_what_was_asked_for_is_learnt_from(tmp_path):
    store = stores.make_store(tmp_path / "records", per_task=14)
    selected = {stores.task(2).hash, stores.task(5).hash}
    division = Division(6, flops_share=0.1, seed=0)
    divided = divided_records(store, store.devices()["b"], division, selected)
    assert set(divided.data.measured.task.tolist()) == selected
    assert divided.dataset_digest == store.digest()


def test_replayed_records_are_read_and_checked_before_a_run(tmp_path):
    store = stores.make_store(tmp_path / "records", per_task=14)
    records = ReplayedRecords(store.path, "b", Division(6, flops_share=1.0, seed=0))
    checked = []
    records.prepare(checked.append)
    divided = records.divide(checked.append)
    assert checked == [divided.data]
    assert len(divided.data.measured) == 9 * 6


def test_live_measurement_measures_within_the_run(tmp_path, monkeypatch):
    """The budget and the programs to test on, of the selected tasks; the check comes after."""
    store = stores.make_store(tmp_path / "records", per_task=14)
    tasks = {stores.task(number).hash: stores.task(number) for number in range(9)}
    profile = store.devices()["b"]
    plans, checked = [], []
    monkeypatch.setattr(transfer_records, "find_profile", lambda _: profile)
    monkeypatch.setattr(
        transfer_records.collect, "prepare", lambda *_: (store, [profile], tasks, {})
    )
    monkeypatch.setattr(
        transfer_records.collect,
        "measure",
        lambda _, __, own, ___, plan, ____: plans.append((own, plan)),
    )
    records = LiveMeasurement(
        "b", ("net",), store.path, Division(6, flops_share=0.5, seed=3), test_programs=5
    )
    records.prepare(checked.append)
    assert not plans and not checked
    divided = records.divide(checked.append)
    (selected, plan) = plans[0]
    assert (plan.programs_per_task, plan.seed) == (11, 3)
    assert set(divided.data.measured.task.tolist()) == set(selected) < set(tasks)
    assert checked == [divided.data]


@pytest.mark.parametrize(
    ("measured", "error"),
    [(True, KeyboardInterrupt), (True, DataError), (True, None), (False, KeyboardInterrupt)],
)
def test_what_was_measured_is_kept_where_it_came_to_nothing(measured, error, caplog):
    with nullcontext() if error is None else pytest.raises(error), kept_folder(None) as out:
        if measured:
            stores.make_store(out, tasks=1)
        else:
            RecordStore.create(out)
        if error:
            raise error("given", "expected", "hint") if error is DataError else error
    kept = measured and error is not None
    assert out.exists() == kept == (f"--out '{out}'" in caplog.text)
    shutil.rmtree(out.parent, ignore_errors=True)


@pytest.mark.parametrize(
    ("share", "chosen"), [(0.5, "a"), (0.51, "ab"), (0.75, "ab"), (0.76, "abc"), (1.0, "abc")]
)
def test_the_heaviest_tasks_are_selected(share, chosen):
    """Of 16 in all `a` has 2 x 4 in two networks, `c` 4 in none, `b` 2 x 2 in one."""
    networks = {"first": {"a": 3, "b": 2}, "second": {"a": 1}}
    assert heaviest({"a": 2.0, "b": 2.0, "c": 4.0}, networks, share) == set(chosen)


def test_another_way_of_what_counts_already_has_no_weight():
    assert heaviest({"a": 1.0, "b": 9.0}, {"net": {"a": 1, "b": 0}}, 0.5) == {"a"}


def test_tasks_without_flops_are_all_selected():
    assert heaviest({"a": 0.0, "b": 0.0}, {}, 0.5) == {"a", "b"}
    assert heaviest({"a": 0.0, "b": 2.0}, {}, 1.0) == {"a", "b"}


def test_a_network_has_no_columns_to_choose(examples):
    with pytest.raises(RequestError, match="xgb or lgbm"):
        on_columns(build("mlp", "quick", 0, {}), 20)


def test_tasks_of_few_programs_are_measured_and_not_tested(on_b):
    few = np.flatnonzero(on_b.task == on_b.task[0])[3:]
    data = few_shot(on_b.take(np.setdiff1d(np.arange(len(on_b)), few)), 6, seed=0)
    assert np.count_nonzero(data.measured.task == on_b.task[0]) == 3
    assert on_b.task[0] not in data.test.task


@pytest.mark.parametrize(
    ("source", "transfer", "scratch", "gate"),
    [
        ((0.8, 0.8, 0.8), (0.9, 0.9, 0.8), (0.7, 0.8, 0.6), "kept"),
        ((0.8, 0.8, 0.8), (0.7, 0.7, 0.7), (0.7, 0.7, 0.7), "dropped"),
        ((0.8, 0.8, 0.8), (0.9, 0.5, 0.8), (0.5, 0.7, 0.8), "dropped"),  # a gain that may be luck
        ((0.5, 0.5, 0.6), (0.9, 0.9, 0.9), (0.7, 0.7, 0.7), "dropped"),
        ((0.8,), (0.9,), (0.7,), "kept"),
        ((), (), (), "dropped"),
    ],
)
def test_the_gates_word(source, transfer, scratch, gate):
    found = np.array(source), np.array(transfer), np.array(scratch)
    assert decide(*found).gate == decide(*found, OwnSide(0.7, 0.01)).gate == gate


def test_the_thresholds_of_the_gate_are_arguments():
    figures = np.full(3, 0.5), np.full(3, 0.9), np.full(3, 0.7)
    lenient = GateOptions(chance_errors=0.0, least_source_pca=0.45)
    assert decide(*figures, OwnSide(0.5, 0.1)).gate == "dropped"
    assert decide(*figures, OwnSide(0.5, 0.1), lenient).gate == "kept"


def test_a_source_that_knows_nothing_of_its_own_devices_is_dropped():
    figures = np.full(3, 0.8), np.full(3, 0.9), np.full(3, 0.7)
    found = decide(*figures, OwnSide(0.52, 0.01))
    assert found.gate == "dropped" and "own devices: PCA 0.5200, at least 0.5250" in found.reason
    assert decide(*figures, OwnSide(0.54, 0.01)).gate == "kept"
    assert decide(*figures, OwnSide(0.7, 0.1)).gate == "dropped"  # its valid side is too small


@pytest.mark.slow
class TestCommand:
    def test_a_related_device_keeps_the_source(self, registry, capfd):
        found = adapting.succeed(capfd, "transfer", *NAMED, "--budget-per-task", "6")
        assert (found["gate"], found["model"], found["version"]) == ("kept", TARGET, 1)
        assert found["pca_transfer"] > found["pca_scratch"]
        assert found["measured"] == 9 * 6
        assert found["test_records"] == 9 * 8
        assert found["leaked_records"] == 0

        trained_on = ("--records", "records", "--device", "a", "--budget-per-task", "6")
        assert adapting.succeed(capfd, "transfer", *trained_on)["leaked_records"] > 0

        version = resolve(f"{TARGET}/1", client=registry)
        assert version.tags["parent_model_uri"] == "models:/costmodel.cpu-x86/1"
        for name in ("pca_source", "pca_transfer", "pca_scratch"):
            assert float(version.tags[f"metric.{name}"]) == found[name]
        gates = StandardGates(registry, fetch)
        said = {result.gate: result for result in gates(version, None, "production")}
        expected = "passed" if found["pca_transfer"] >= found["pca_source"] else "refused"
        assert said["transfer"].outcome == expected
        assert said["top1"].outcome == said["artifacts"].outcome == "passed"
        above = lineage(f"models:/{TARGET}/1", client=registry).edges
        assert any("models:/costmodel.cpu-x86/1" in edge for edge in above)
        judged = adapting.succeed(
            capfd, "evaluate", "--model", f"{TARGET}/1", "--records", "records", "--device", "b"
        )
        assert judged["seen_records"] == 9 * 6

    def test_records_of_the_source_are_learnt_together_with_the_measured(self, registry, capfd):
        taught = ("--source-records", "records", "--budget-per-task", "6")
        found = adapting.succeed(capfd, "transfer", *NAMED, *taught)
        assert found["transfer_way"] in ("together", "fine_tuned")
        assert found["leaked_records"] == 0  # those of the device are not learnt from
        run = registry.get_run(found["run_id"])
        assert run.data.tags["transfer_way"] == found["transfer_way"]

    def test_selected_tasks_and_columns(self, registry, capfd):
        """Of 45 occurrences in all, 9, 8 and 7 are more than half."""
        chosen = ("--flops-share", "0.5", "--fine-tune-columns", "20")
        found = adapting.succeed(capfd, "transfer", *NAMED, "--budget-per-task", "6", *chosen)
        assert found["measured"] == 3 * 6
        assert found["test_records"] == 9 * 14 - 3 * 6
        assert found["pca_transfer"] > 0.5

    def test_shuffled_labels_are_dropped_and_nothing_is_registered(
        self, registry, capfd, monkeypatch
    ):
        sources = []
        monkeypatch.setattr(command_run, "log_source_model", sources.append)
        useless = ("--source", "models:/costmodel.useless/1", "--budget-per-task", "6")
        found = adapting.succeed(capfd, "transfer", *NAMED, *useless)
        assert (found["gate"], found["model"], found["version"]) == ("dropped", None, None)
        assert found["pca_scratch"] > found["pca_source"]
        assert registry.search_model_versions(f"name = '{TARGET}'") == []
        run = registry.get_run(found["run_id"])
        assert run.data.tags["gate"] == "dropped"
        metrics = run.data.metrics
        assert metrics["pca_scratch"] == metrics["decides/pca_scratch"] == found["pca_scratch"]
        assert [version.uri for version in sources] == ["models:/costmodel.useless/1"]

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--records", "records", "--device", "z"), "a device of the records (a, b)"),
            ((*NAMED, "--budget-per-task", "32"), "at most 12"),
            ((*NAMED, "--source", "models:/costmodel.none/1"), "costmodel.none"),
            (("--records", "nowhere", "--device", "b"), "store.json"),
        ],
    )
    def test_wrong_requests_are_one_line_and_leave_no_run(self, registry, capfd, arguments, said):
        experiments = [e.experiment_id for e in registry.search_experiments()]
        before = len(registry.search_runs(experiments))
        assert said in adapting.refuse(capfd, "transfer", *arguments)
        experiments = [e.experiment_id for e in registry.search_experiments()]
        assert len(registry.search_runs(experiments)) == before
