"""Unapplied traces: mutated without TVM and ranked by what they alone say."""

import dataclasses
import json
import math
import random

import numpy as np
import pytest
import stores

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.store import RecordStore
from hetfeat.errors import DataError
from hetfeat.features.assemble import assemble, batch_of
from hetfeat.features.trace import steps, vectors, vectors_of_steps
from hetfeat.features.unapplied_traces import as_unapplied
from hetfeat.models.gbdt import XgbModel
from hetfeat.models.gbdt_parameters import GbdtParameters
from hetfeat.models.persist import HEAD
from hetfeat.models.trace_ranker import FILE, RankerOptions, UnappliedTraceModel
from hetfeat.records import Program
from hetfeat.schedules import trace as traces
from hetfeat.schedules.registers import VectorUnit
from hetfeat.search.trace_mutation import MutationConfig, mutate_traces
from hetfeat.transfer.finetune import mean_pca

EXTENT = 4096


def split(outer: int, inner: int, postproc: bool = False) -> str:
    draw = ["SamplePerfectTile", ["l1"], [2, EXTENT], ["v1", "v2"]]
    instructions = [draw, ["Split", ["l1", "v1", "v2"], [1], ["l2", "l3"]]]
    after = [["EnterPostproc", [], [], []], ["Vectorize", ["l3"], [], []]] if postproc else []
    return traces.dump([[*instructions, *after], [[0, [outer, inner]]]])


def inner_of(trace: str) -> int:
    return json.loads(trace)[1][0][1][1]


def nearness(goal: int):
    """A judgement by which an inner loop of `goal` is best."""
    return lambda texts: np.array([-abs(math.log2(inner_of(t) / goal)) for t in texts])


class TestMutation:
    @pytest.mark.parametrize("goal", [1, 64, EXTENT])
    def test_the_judgement_s_favourite_is_found(self, goal):
        parents = [split(EXTENT // 8, 8, postproc=True)]
        first, *_ = mutate_traces(parents, nearness(goal), 5, random.Random(0))
        assert inner_of(first) == goal

    def test_the_best_come_first_once_each_and_without_post_processing(self):
        rank = nearness(64)
        found = mutate_traces([split(EXTENT, 1, postproc=True)], rank, 6, random.Random(0))
        scores = rank(found).tolist()
        assert scores == sorted(scores, reverse=True)
        assert len(set(found)) == len(found) == 6
        assert not any(traces.POSTPROC in text for text in found)

    def test_parents_are_not_among_them(self):
        parents = [split(EXTENT // n, n, postproc=True) for n in (32, 64)]
        found = mutate_traces(parents, nearness(64), 99, random.Random(0))
        assert {inner_of(text) for text in found} == {2**n for n in range(13)} - {32, 64}

    def test_without_decisions_there_are_none(self):
        rng = random.Random(0)
        assert mutate_traces(["[[],[]]"], lambda texts: np.ones(len(texts)), 5, rng) == []

    def test_the_same_seed_breeds_alike(self):
        parents = [split(EXTENT, 1)]
        one, same, other = (
            mutate_traces(parents, lambda texts: np.zeros(len(texts)), 5, random.Random(n))
            for n in (1, 1, 2)
        )
        assert one == same != other

    def test_a_smaller_population_ranks_fewer(self):
        ranked = []

        def rank(texts):
            ranked.extend(texts)
            return np.zeros(len(texts))

        config = MutationConfig(population=3, generations=2)
        mutate_traces([split(EXTENT, 1)], rank, 5, random.Random(0), config)
        assert 0 < len(ranked) <= 6

    def test_what_does_not_fit_the_registers_is_not_ranked(self):
        instructions, decisions = json.loads(split(EXTENT, 1))
        unrolled = [[*instructions, ["Unroll", ["l3"], [], []]], decisions]
        unit = VectorUnit(1, 16)
        found = mutate_traces(
            [traces.dump(unrolled)], nearness(EXTENT), 99, random.Random(0), unit=unit
        )
        assert {inner_of(text) for text in found} == {8}  # 6 sums at least, and 13 at most


def test_a_sequence_says_what_the_trace_without_post_processing_does():
    table = next(iter(RecordStore.open(packaged_store()).scan(["trace"])))
    full = table["trace"].to_pylist()[:300]
    bare = [traces.dump(traces.without_postproc(json.loads(text))) for text in full]
    assert np.array_equal(vectors_of_steps(*steps(full)), vectors(bare))
    assert not np.array_equal(vectors(full), vectors(bare))


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """Tasks of which the inner loop of 64 is fastest."""
    store = stores.make_traced_store(tmp_path_factory.mktemp("traced") / "records", 9, 24)
    return assemble(store).examples


def part(examples, numbers):
    hashes = [stores.task(number).hash for number in numbers]
    return examples.take(np.flatnonzero(np.isin(examples.task, hashes)))


@pytest.fixture(scope="module")
def model(examples):
    found = UnappliedTraceModel.fit(part(examples, range(5)), part(examples, (5, 6)), seed=0)
    assert found is not None
    return found


class TestModel:
    def test_tasks_that_it_has_not_seen_are_ordered(self, model, examples):
        test = part(examples, (7, 8))
        assert mean_pca(model.predict(test.batch), test) > 0.9

    def test_post_processing_and_stores_make_no_difference(self, model):
        profile, task = stores.profile("a"), stores.task(0)
        given = [split(64, 64), split(64, 64, postproc=True)]
        programs = [Program(task, text) for text in given]
        with_stores = Program(task, given[0], np.ones((2, 164), np.float32))
        scores = model.predict(batch_of([*programs, with_stores], profile))
        assert len(set(scores.tolist())) == 1

    def test_measurements_teach_it(self, model, examples):
        test = part(examples, (7, 8))
        turned = dataclasses.replace(test, latency_s=1e-9 / test.latency_s)
        before = mean_pca(model.predict(test.batch), turned)
        assert before < 0.1
        assert mean_pca(model.fine_tune(turned).predict(test.batch), turned) > before + 0.2

    def test_measurements_that_say_nothing_leave_it_as_it_is(self, model, examples):
        assert model.fine_tune(examples.take(np.array([0]))) is model

    def test_nothing_to_compare_makes_no_model(self, examples):
        one = examples.take(np.array([0]))
        assert UnappliedTraceModel.fit(examples, one, 0) is None
        assert UnappliedTraceModel.fit(one, examples, 0) is None

    def test_operators_of_few_records_are_not_known(self, examples):
        sides = part(examples, range(5)), part(examples, (5, 6))
        assert UnappliedTraceModel.fit(*sides, seed=0).operators == set()
        two_tasks = RankerOptions(known_records=48)
        assert UnappliedTraceModel.fit(*sides, 0, two_tasks).operators == {"conv2d", "matmul"}

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("device", "own"),
        [("znver3-avx2-2t", {"conv2d", "matmul", "winograd"}), ("znver5-sse42-2t", set())],
    )
    def test_it_says_of_which_operators_it_has_learnt_sketches_of_ours(self, device, own):
        quick = RankerOptions(trees=GbdtParameters(rounds=1))
        store = RecordStore.open(packaged_store())
        known = assemble(store, devices=[f"amd-epyc-{device}"]).examples
        assert UnappliedTraceModel.fit(known, known, 0, quick).own >= own
        assert bool(UnappliedTraceModel.fit(known, known, 0, quick).own) is bool(own)

    def test_it_lies_in_the_folder_of_its_model(self, examples, tmp_path):
        known, valid, test = part(examples, range(5)), part(examples, (5, 6)), part(examples, (7,))
        model = XgbModel(GbdtParameters(rounds=20))
        model.fit(known, valid)
        model.save(tmp_path / "without")
        assert XgbModel.load(tmp_path / "without").trace_ranker is None
        model.learn_unapplied_traces(known, valid)
        model.save(tmp_path / "with")
        loaded = XgbModel.load(tmp_path / "with")
        drafted = as_unapplied(test.batch.loaded())
        assert loaded.trace_ranker.operators == model.trace_ranker.operators
        assert loaded.trace_ranker.own == model.trace_ranker.own
        assert np.array_equal(
            loaded.trace_ranker.predict(drafted), model.trace_ranker.predict(drafted)
        )
        tuned = loaded.fine_tune(test)
        assert not np.array_equal(
            tuned.trace_ranker.predict(drafted), model.trace_ranker.predict(drafted)
        )

    def test_a_damaged_file_is_told(self, examples, tmp_path):
        model = XgbModel(GbdtParameters(rounds=5))
        model.fit(part(examples, range(5)), part(examples, (5, 6)))
        model.learn_unapplied_traces(part(examples, range(5)), part(examples, (5, 6)))
        model.save(tmp_path / "model")
        (tmp_path / "model" / FILE).write_bytes(b"torn")
        with pytest.raises(DataError, match=FILE):
            XgbModel.load(tmp_path / "model")
        assert FILE in json.loads((tmp_path / "model" / HEAD).read_text())["files"]
