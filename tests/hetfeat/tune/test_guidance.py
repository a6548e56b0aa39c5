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
from hetfeat.models.trace_ranker import RankerOptions
from hetfeat.search.base import Exploration
from hetfeat.transfer.finetune import fine_tuned, mean_pca
from hetfeat.tune.guidance import GuidanceConfig, ModelGuidance, refuse_source_at_chance

HERE = stores.profile("b")
FIRST_FIT, GATE_FACTOR = 64, 4


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


def pca(guidance: ModelGuidance) -> float:
    """On programs that nobody has seen."""
    unseen = measured(range(6), 120, seed=7)
    assert guidance.model is not None
    return mean_pca(
        guidance.model.predict(batch_of([m.program for m in unseen], HERE)), examples(unseen)
    )


def test_a_source_that_helps_is_kept_and_fine_tuned():
    helpful = source()
    guidance = ModelGuidance(helpful, HERE, seed=0)
    before = pca(guidance)
    guidance.learn(measured(range(6), FIRST_FIT))
    assert guidance.source is helpful and guidance.model is not helpful
    assert sum(guidance.model.seen["b"].values()) > sum(helpful.seen["b"].values())
    assert pca(guidance) > before - 0.02


def test_a_source_that_misleads_is_dropped(caplog):
    guidance = ModelGuidance(source(wrong=True), HERE, seed=0)
    assert pca(guidance) < 0.3
    guidance.learn(measured(range(6), FIRST_FIT))
    assert guidance.source is None and "is dropped" in caplog.text
    guidance.learn(measured(range(6), 4 * FIRST_FIT))
    assert pca(guidance) > 0.7


@pytest.mark.parametrize(
    ("valid_pca", "chance_error", "kept"),
    [
        (None, None, True),
        (0.7, None, True),  # saved before there was such an error
        (0.7, 0.05, True),
        (0.6, 0.05, False),
        (0.7, 0.1, False),  # so few programs that chance comes to it
        (0.58, 0.02, True),
    ],
)
def test_a_source_that_knows_nothing_of_its_own_devices_is_not_trusted(
    valid_pca, chance_error, kept, caplog
):
    found = source()
    found.valid_pca, found.chance_error = valid_pca, chance_error
    assert refuse_source_at_chance(found) is (found if kept else None)
    assert ("is dropped" in caplog.text) is not kept


@pytest.mark.parametrize("right", [True, False])
def test_a_ranker_that_misleads_is_learnt_anew(right, caplog):
    helpful = source()
    scores = helpful.predict if right else (lambda batch: 1 / helpful.predict(batch))
    ranker = SimpleNamespace(operators={"conv2d", "matmul"}, own=(), predict=scores)
    ranker.fine_tune = lambda records: ranker
    helpful.trace_ranker = ranker
    guidance = ModelGuidance(helpful, HERE, seed=0)
    guidance.learn(measured(range(6), FIRST_FIT))
    assert guidance.source is not None and helpful.trace_ranker is ranker
    assert guidance.model is not None and guidance.model.trace_ranker is not None
    assert (guidance.model.trace_ranker is ranker) is right
    assert ("unapplied traces are dropped" in caplog.text) is not right
    explored = guidance.for_task(stores.task(0)).exploration
    assert explored.reserve_custom_sketches  # which sketches the source had learnt is not forgotten


@pytest.mark.parametrize(
    ("kept", "fresh", "drops"),
    [
        ([0.7, 0.72, 0.69, 0.71], [0.74, 0.69, 0.72, 0.7], False),
        ([0.7, 0.72, 0.69, 0.71], [0.8, 0.83, 0.78, 0.82], True),
        ([0.7], [0.9], False),
    ],
)
def test_a_source_is_not_dropped_for_what_may_be_luck(monkeypatch, kept, fresh, drops):
    found = {30: np.array(kept)}, np.array(fresh)
    monkeypatch.setattr(ModelGuidance, "_cross_validated", lambda *_: found)
    guidance = ModelGuidance(source(), HERE, seed=0)
    guidance.learn(measured(range(6), FIRST_FIT))
    assert (guidance.source is None) is drops


@pytest.mark.parametrize("rounds", [0, 10, 100])
def test_fine_tuning_is_as_strong_as_the_cross_validation_says(monkeypatch, rounds):
    """It had been 30 rounds whatever was measured, which harmed half of the sources."""
    by_rounds = {n: np.full(4, 0.9 if n == rounds else 0.8) for n in (0, 10, 30, 100)}
    monkeypatch.setattr(ModelGuidance, "_cross_validated", lambda *_: (by_rounds, np.full(4, 0.7)))
    own, records = source(), measured(range(6), FIRST_FIT)
    guidance = ModelGuidance(own, HERE, seed=0)
    guidance.learn(records)
    assert guidance.model is not None
    known = examples(records)
    said = guidance.model.predict(known.batch)
    np.testing.assert_array_equal(said, fine_tuned(own, known, rounds).predict(known.batch))
    assert guidance.model.parameters == own.parameters
    as_before = own.fine_tune(known).predict(known.batch)  # for 10 rounds
    assert np.array_equal(said, as_before) is (rounds == 10)


def test_the_strengths_are_those_of_the_settings_and_one_that_helps_wins():
    wrong = source(wrong=True)
    config = GuidanceConfig(strengths=(0, 100))
    guidance = ModelGuidance(wrong, HERE, seed=0, config=config)
    records = examples(measured(range(6), 4 * FIRST_FIT))
    by_rounds, fresh = guidance._cross_validated(wrong, records)
    assert list(by_rounds) == [0, 100] and len(fresh) == len(by_rounds[0])
    assert by_rounds[100].mean() > by_rounds[0].mean() + 0.1


def test_a_source_whose_strength_cannot_be_set_is_fine_tuned_as_it_is():
    class Plain:
        """A cost model of another package."""

        trace_ranker = valid_pca = chance_error = None

        def predict(self, batch, support=None):
            return np.arange(1.0, len(batch) + 1)

        def fine_tune(self, records):
            tuned.append(len(records))
            return self

        def learn_unapplied_traces(self, train, valid):
            pass

    plain, tuned = Plain(), []
    guidance = ModelGuidance(plain, HERE, seed=0)
    records = examples(measured(range(6), 4 * FIRST_FIT))
    by_rounds, _ = guidance._cross_validated(plain, records)
    assert list(by_rounds) == [None] and sum(tuned) == 4 * FIRST_FIT


@pytest.mark.slow
def test_the_gate_is_asked_now_and_then(monkeypatch):
    guidance, asked = ModelGuidance(source(), HERE, seed=0), []
    monkeypatch.setattr(guidance, "_gate", lambda model, records: asked.append(len(records)))
    for count in range(16, 1025, 16):
        guidance.learn(measured(range(6), count))
    assert asked == [FIRST_FIT, GATE_FACTOR * FIRST_FIT, GATE_FACTOR**2 * FIRST_FIT]


def test_without_a_source_a_model_comes_once_there_is_enough_to_learn_from():
    guidance = ModelGuidance(None, HERE, seed=0)
    guidance.learn(measured(range(6), FIRST_FIT - 1))
    assert guidance.model is None
    guidance.learn(measured(range(6), 4 * FIRST_FIT))
    assert pca(guidance) > 0.7
    assert guidance.model is not None and guidance.model.trace_ranker is not None
    assert guidance.for_task(stores.task(0)).exploration.score_warm_starts


def test_measurements_that_teach_nothing_leave_it_without_a_model():
    same = [replace(m, latencies_s=(1e-3,)) for m in measured(range(1), FIRST_FIT)]
    guidance = ModelGuidance(None, HERE, seed=0)
    guidance.learn(same)
    assert guidance.model is None


@pytest.mark.parametrize("trace_ranker", ["of its operator", "of others", None])
def test_a_search_is_guided_by_what_there_is(trace_ranker):
    guidance = ModelGuidance(source(), HERE, seed=0)
    assert guidance.model is not None
    if trace_ranker:
        many = 1 if trace_ranker == "of its operator" else 10_000
        known = examples(measured(range(12, 30), 360))
        guidance.model.learn_unapplied_traces(known, known, RankerOptions(known_records=many))
    asked = guidance.for_task(stores.task(0))
    programs = stores.programs(stores.task(0), 5, seed=3)
    assert np.array_equal(asked.score(programs), guidance.model.predict(batch_of(programs, HERE)))
    assert (asked.rank_traces is not None) is (trace_ranker == "of its operator")


def test_what_a_search_is_told_is_of_the_model_of_now():
    guidance = ModelGuidance(None, HERE, seed=0)
    asked = guidance.for_task(stores.task(0))
    assert asked.score is asked.rank_traces is None
    guidance.learn(measured(range(6), 4 * FIRST_FIT))
    assert asked.score is not None


def test_it_learns_at_once_and_then_when_there_is_enough_that_is_new(monkeypatch):
    guidance = ModelGuidance(None, HERE, 0, GuidanceConfig(refit_every=10))
    learnt = []
    monkeypatch.setattr(guidance, "learn", lambda records: learnt.append(len(records)))
    records = measured(range(6), 40)
    for count in (0, 4, 9, 10, 15, 21, 30, 31):
        guidance.learn_when_due(records[:count])
    assert learnt == [0, 10, 21, 31]


@pytest.mark.parametrize("trace_ranker", ["of both", "of TVM's", None])
def test_sketches_that_a_source_has_not_learnt_take_turns(trace_ranker, monkeypatch):
    taught, task = source(), stores.task(0)
    if trace_ranker:
        known = examples(
            [as_custom_sketch(m, trace_ranker == "of both") for m in measured(range(12, 30), 360)]
        )
        taught.learn_unapplied_traces(known, known, RankerOptions(known_records=1))
    guidance = ModelGuidance(taught, HERE, seed=0)
    monkeypatch.setattr(guidance, "_gate", lambda *_: None)
    asked = guidance.for_task(task)
    assert asked.exploration == Exploration(reserve_custom_sketches=trace_ranker == "of TVM's")
    records = [as_custom_sketch(m, True) for m in measured(range(1), FIRST_FIT)]
    guidance.learn(records[:-1])
    assert asked.exploration.reserve_custom_sketches is (trace_ranker == "of TVM's")
    guidance.learn(records)
    assert not asked.exploration.reserve_custom_sketches


def as_custom_sketch(found, ours: bool):
    """Its trace as if of a sketch of ours."""
    program = found.program
    steps = '["Parallel",["l1"],[],[]]' if ours else ""
    trace = program.trace.replace("[[],", f"[[{steps}],", 1)
    return replace(found, program=replace(program, trace=trace))


def test_the_measured_programs_of_a_task_are_its_support_set(monkeypatch):
    guidance = ModelGuidance(source(), HERE, seed=0)
    read = []
    monkeypatch.setattr(
        XgbModel, "predict", lambda self, batch, support: read.append(sorted(support.program))
    )
    asked, mine = guidance.for_task(stores.task(0)), measured(range(1), 4)
    for heard in (measured(range(1, 2), 3), mine[:2], mine[2:]):
        guidance.add_to_support_sets(heard)
        asked.score(stores.programs(stores.task(0), 5, seed=3))
    keys = [m.program.key for m in mine]
    assert read == [[], sorted(keys[:2]), sorted(keys)]
