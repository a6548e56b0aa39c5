"""What guides a search while it goes on: the source, the source fine-tuned, or no source."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import stores

from hetfeat.features.assemble import batch_of
from hetfeat.features.batch import Examples
from hetfeat.models.gbdt import XgbModel
from hetfeat.models.gbdt_parameters import GbdtParameters
from hetfeat.search.evolution import Evolution
from hetfeat.transfer.finetune import mean_pca
from hetfeat.tune.guidance import FIRST_FIT, GATE_FACTOR, Judge, trusted

HERE = stores.profile("b")


def measured(tasks: range, count: int, seed: int = 1):
    """Programs of tasks in turn, measured on the device."""
    programs = [stores.programs(stores.task(t), -(-count // len(tasks)), seed) for t in tasks]
    in_turn = [p for row in zip(*programs, strict=True) for p in row][:count]
    return [stores.measured(program, HERE) for program in in_turn]


def examples(found) -> Examples:
    from hetfeat.features.assemble import examples_of

    return examples_of(found, HERE)


def source(wrong: bool = False) -> XgbModel:
    """Trained on other tasks; a wrong one was told the opposite."""
    known, valid = examples(measured(range(12, 30), 360)), examples(measured(range(30, 36), 90))
    if wrong:
        known, valid = (replace(told, latency_s=1e-9 / told.latency_s) for told in (known, valid))
    model = XgbModel(GbdtParameters(rounds=60, fine_tune_rounds=10))
    model.fit(known, valid)
    return model


def pca(judge: Judge) -> float:
    """On programs that nobody has seen."""
    unseen = measured(range(6), 120, seed=7)
    assert judge.model is not None
    return mean_pca(
        judge.model.predict(batch_of([m.program for m in unseen], HERE)), examples(unseen)
    )


def test_a_source_that_helps_is_kept_and_fine_tuned():
    helpful = source()
    judge = Judge(helpful, HERE, seed=0)
    before = pca(judge)
    judge.learn(measured(range(6), FIRST_FIT))
    assert judge.source is helpful and judge.model is not helpful
    assert sum(judge.model.seen["b"].values()) > sum(helpful.seen["b"].values())
    assert pca(judge) > before - 0.02


def test_a_source_that_misleads_is_dropped(caplog):
    judge = Judge(source(wrong=True), HERE, seed=0)
    assert pca(judge) < 0.3
    judge.learn(measured(range(6), FIRST_FIT))
    assert judge.source is None and "is dropped" in caplog.text
    judge.learn(measured(range(6), 4 * FIRST_FIT))
    assert pca(judge) > 0.7


@pytest.mark.parametrize(("valid_pca", "kept"), [(None, True), (0.7, True), (0.6, False)])
def test_a_source_that_knows_nothing_of_its_own_devices_is_not_trusted(valid_pca, kept, caplog):
    found = source()
    found.valid_pca = valid_pca
    assert trusted(found) is (found if kept else None)
    assert ("is dropped" in caplog.text) is not kept


@pytest.mark.parametrize("right", [True, False])
def test_drafts_that_mislead_are_learnt_anew(right, caplog):
    helpful = source()
    scores = helpful.predict if right else (lambda batch: 1 / helpful.predict(batch))
    drafts = SimpleNamespace(operators={"conv2d", "matmul"}, own=(), predict=scores)
    drafts.fine_tune = lambda records: drafts
    helpful.draft = drafts
    judge = Judge(helpful, HERE, seed=0)
    judge.learn(measured(range(6), FIRST_FIT))
    assert judge.source is not None and helpful.draft is drafts
    assert judge.model is not None and judge.model.draft is not None
    assert (judge.model.draft is drafts) is right
    assert ("drafts are dropped" in caplog.text) is not right
    search = Evolution(stores.task(0), None, None, 0)
    judge.guide(search, stores.task(0), None)
    assert search.in_turns  # which sketches the source had learnt is not forgotten


@pytest.mark.parametrize(
    ("kept", "fresh", "drops"),
    [
        ([0.7, 0.72, 0.69, 0.71], [0.74, 0.69, 0.72, 0.7], False),
        ([0.7, 0.72, 0.69, 0.71], [0.8, 0.83, 0.78, 0.82], True),
        ([0.7], [0.9], False),
    ],
)
def test_a_source_is_not_dropped_for_what_may_be_luck(monkeypatch, kept, fresh, drops):
    found = np.array(kept), np.array(fresh)
    monkeypatch.setattr(Judge, "_cross_validated", lambda *_: found)
    judge = Judge(source(), HERE, seed=0)
    judge.learn(measured(range(6), FIRST_FIT))
    assert (judge.source is None) is drops


def test_the_gate_is_asked_now_and_then(monkeypatch):
    judge, asked = Judge(source(), HERE, seed=0), []
    monkeypatch.setattr(judge, "_gate", lambda model, records: asked.append(len(records)))
    for count in range(16, 1025, 16):
        judge.learn(measured(range(6), count))
    assert asked == [FIRST_FIT, GATE_FACTOR * FIRST_FIT, GATE_FACTOR**2 * FIRST_FIT]


def test_without_a_source_a_model_comes_once_there_is_enough_to_learn_from():
    judge = Judge(None, HERE, seed=0)
    judge.learn(measured(range(6), FIRST_FIT - 1))
    assert judge.model is None
    judge.learn(measured(range(6), 4 * FIRST_FIT))
    assert pca(judge) > 0.7
    assert judge.model is not None and judge.model.draft is not None
    search = Evolution(stores.task(0), None, None, 0)
    judge.guide(search, stores.task(0), None)
    assert search.judges_starts


def test_measurements_that_teach_nothing_leave_it_without_a_model():
    same = [replace(m, latencies_s=(1e-3,)) for m in measured(range(1), FIRST_FIT)]
    judge = Judge(None, HERE, seed=0)
    judge.learn(same)
    assert judge.model is None


@pytest.mark.parametrize("draft", ["of its operator", "of others", None])
def test_a_search_is_guided_by_what_there_is(draft, monkeypatch):
    judge = Judge(source(), HERE, seed=0)
    assert judge.model is not None
    if draft:
        many = 1 if draft == "of its operator" else 10_000
        monkeypatch.setattr("hetfeat.models.trace_ranker.KNOWN_RECORDS", many)
        known = examples(measured(range(12, 30), 360))
        judge.model.learn_drafts(known, known)
    search = Evolution(stores.task(0), None, None, 0)
    judge.guide(search, stores.task(0), None)
    programs = stores.programs(stores.task(0), 5, seed=3)
    assert np.array_equal(search.score(programs), judge.model.predict(batch_of(programs, HERE)))
    assert (search.draft is not None) is (draft == "of its operator")


@pytest.mark.parametrize("draft", ["of both", "of TVM's", None])
def test_sketches_that_a_source_has_not_learnt_take_turns(draft, monkeypatch):
    taught, task = source(), stores.task(0)
    if draft:
        monkeypatch.setattr("hetfeat.models.trace_ranker.KNOWN_RECORDS", 1)
        known = examples([as_ours(m, draft == "of both") for m in measured(range(12, 30), 360)])
        taught.learn_drafts(known, known)
    judge, search = Judge(taught, HERE, seed=0), Evolution(task, None, None, 0)
    judge.guide(search, task, None)
    assert search.in_turns is (draft == "of TVM's") and not search.judges_starts
    judge.hear([as_ours(m, True) for m in measured(range(1), FIRST_FIT)])
    judge.guide(search, task, None)
    assert not search.in_turns


def as_ours(found, ours: bool):
    """Its trace as if of a sketch of ours."""
    program = found.program
    steps = '["Parallel",["l1"],[],[]]' if ours else ""
    trace = program.trace.replace("[[],", f"[[{steps}],", 1)
    return replace(found, program=replace(program, trace=trace))


def test_the_measured_programs_of_a_task_are_its_support_set(monkeypatch):
    judge = Judge(source(), HERE, seed=0)
    read = []
    monkeypatch.setattr(
        XgbModel, "predict", lambda self, batch, support: read.append(sorted(support.program))
    )
    search, mine = Evolution(stores.task(0), None, None, 0), measured(range(1), 4)
    judge.guide(search, stores.task(0), None)
    for heard in (measured(range(1, 2), 3), mine[:2], mine[2:]):
        judge.hear(heard)
        search.score(stores.programs(stores.task(0), 5, seed=3))
    keys = [m.program.key for m in mine]
    assert read == [[], sorted(keys[:2]), sorted(keys)]
