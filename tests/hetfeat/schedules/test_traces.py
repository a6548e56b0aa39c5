"""Traces as JSON: properties of their variation, and a real task's programs."""

import json
import math
import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hetfeat.schedules import trace as traces

FACTORS = st.lists(st.integers(1, 96), min_size=1, max_size=5)
MAX_INNERMOST = st.sampled_from([0, 1, 8, 16, 64])
SEEDS = st.integers(0, 2**32)


def tile(index: int, factors: list[int], innermost: int):
    instruction = ["SamplePerfectTile", [f"l{index}"], [len(factors), innermost], [f"v{index}"]]
    return instruction, factors


def categorical(index: int, count: int, value: int):
    attributes = [list(range(count)), [1 / count] * count]
    return ["SampleCategorical", [], attributes, [f"v{index}"]], value % count


@st.composite
def some_traces(draw):
    """A trace of sampling instructions among others, with or without post-processing."""
    instructions, decisions = [], []
    for index in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["tile", "categorical", "location", "plain"]))
        made = {
            "tile": lambda i=index: tile(i, draw(FACTORS), draw(MAX_INNERMOST)),
            "categorical": lambda i=index: categorical(i, draw(st.integers(1, 5)), 3),
            "location": lambda: (["SampleComputeLocation", ["b0"], [], ["l0"]], -1),
            "plain": lambda: (["GetSBlock", [], ["matmul", "main"], ["b0"]], None),
        }[kind]()
        instructions.append(made[0])
        if made[1] is not None:
            decisions.append([index, made[1]])
    if draw(st.booleans()):
        instructions.append([traces.POSTPROC, [], [], []])
        instructions.append(["SampleCategorical", [], [[0, 1], [0.5, 0.5]], ["v99"]])
        decisions.append([len(instructions) - 1, 0])
    return [instructions, decisions]


@given(FACTORS, MAX_INNERMOST, SEEDS)
def test_a_moved_prime_keeps_the_product_and_the_innermost_limit(factors, innermost, seed):
    given_factors = list(factors)
    moved = traces.move_prime(factors, innermost, random.Random(seed))
    assert factors == given_factors
    assume(moved is not None)
    assert math.prod(moved) == math.prod(factors)
    assert sum(a != b for a, b in zip(moved, factors, strict=True)) == 2
    assert min(moved) >= 1
    if innermost > 0:
        assert moved[-1] <= max(innermost, factors[-1])


@given(st.integers(2, 64), SEEDS)
def test_a_prime_can_move_wherever_there_is_one(extent, seed):
    assert traces.move_prime([extent, 1], 0, random.Random(seed)) is not None
    assert traces.move_prime([extent], 0, random.Random(seed)) is None
    assert traces.move_prime([extent, 1], 1, random.Random(seed)) is None


@given(some_traces(), SEEDS)
def test_drawing_anew_keeps_extents_limits_and_instructions(trace, seed):
    before = json.dumps(trace)
    drawn = traces.drawn_anew(trace, random.Random(seed))
    assert json.dumps(trace) == before
    instructions, decisions = traces.without_postproc(trace)
    assert drawn[0] == instructions
    old = dict(map(tuple, decisions))
    for index, value in drawn[1]:
        kind, _, attributes, _ = instructions[index]
        if kind == traces.TILE:
            levels, innermost = attributes
            assert (math.prod(value), len(value)) == (math.prod(old[index]), levels)
            assert levels == 1 or not innermost or value[-1] <= innermost
        else:
            assert kind == traces.CATEGORICAL and value in range(len(attributes[0]))
    located = {i for i, d in decisions if instructions[i][0] == "SampleComputeLocation"}
    assert set(old) - set(dict(map(tuple_of, drawn[1]))) == located


@given(some_traces(), SEEDS)
def test_a_cross_has_each_decision_of_one_or_the_other(trace, seed):
    rng = random.Random(seed)
    one, other = traces.without_postproc(trace), traces.drawn_anew(trace, rng)
    crossed = traces.cross_over(one, other, rng)
    assert crossed[0] == one[0]
    mine, theirs = dict(map(tuple_of, one[1])), dict(map(tuple_of, other[1]))
    for index, value in map(tuple_of, crossed[1]):
        assert value in (mine[index], theirs.get(index))
    assert len(crossed[1]) == len(one[1])


def test_a_cross_of_different_sketches_is_the_first():
    one, other = [[["A", [], [], []]], []], [[["B", [], [], []]], []]
    assert traces.cross_over(one, other, random.Random(0)) == one


@given(some_traces(), SEEDS)
@settings(max_examples=300)
def test_varying_changes_exactly_one_decision(trace, seed):
    before = json.dumps(trace)
    changed = traces.vary(trace, random.Random(seed))
    assert json.dumps(trace) == before
    assume(changed is not None)
    instructions, decisions = traces.without_postproc(trace)
    assert changed[0] == instructions
    old, new = dict(map(tuple_of, decisions)), dict(map(tuple_of, changed[1]))
    assert set(new) <= set(old)
    different = [index for index in old if old[index] != new.get(index)]
    assert len(different) == 1
    assert different[0] in new or instructions[different[0]][0] == "SampleComputeLocation"


def tuple_of(decision):
    return decision[0], json.dumps(decision[1])


@given(some_traces())
def test_nothing_of_post_processing_is_left(trace):
    instructions, decisions = traces.without_postproc(trace)
    assert traces.POSTPROC not in [instruction[0] for instruction in instructions]
    assert all(index < len(instructions) for index, _ in decisions)


@given(some_traces())
def test_json_round_trip(trace):
    assert json.loads(traces.dump(trace)) == trace


@given(some_traces(), SEEDS)
def test_the_same_seed_varies_alike(trace, seed):
    first, second = (traces.vary(trace, random.Random(seed)) for _ in range(2))
    assert first == second


def test_boxed_numbers_are_unboxed():
    class Boxed:
        value = 7

    assert traces.dump([[], [[0, Boxed()]]]) == "[[],[[0,7]]]"


@pytest.fixture(scope="module")
def space(device):
    from tvm import te

    from hetfeat.schedules.design_space import TaskSpace
    from hetfeat.workloads.relax import as_target

    a, b = te.placeholder((32, 48), name="a"), te.placeholder((48, 64), name="b")
    k = te.reduce_axis((0, 48), name="k")
    c = te.compute((32, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="matmul")
    function = te.create_prim_func([a, b, c])
    import tvm

    return TaskSpace(tvm.IRModule({"main": function}), as_target(device.target), 64)


@pytest.mark.slow
@pytest.mark.tvm
class TestARealTask:
    def test_programs_replay_to_themselves(self, space):
        import numpy as np
        import tvm_ffi

        from hetfeat.schedules.design_space import as_candidate, replay

        hashes = set()
        for trace, features in space.sample(6, seed=1):
            schedules = [replay(space.module, trace) for _ in range(2)]
            first, second = (tvm_ffi.structural_hash(s.mod) for s in schedules)
            assert first == second
            assert traces.dump(schedules[0].trace.as_json()) == trace
            np.testing.assert_array_equal(space._features(as_candidate(schedules[0])), features)
            assert features.dtype == np.float32
            assert features.shape[1] == 164
            hashes.add(first)
        assert len(hashes) > 1

    def test_the_same_seed_draws_the_same_programs(self, space):
        first, second, other = ([trace for trace, _ in space.sample(8, seed)] for seed in (3, 3, 4))
        assert first == second
        assert first != other
        assert len(set(first)) == 8

    def test_variations_are_new_distinct_valid_programs(self, space):
        from hetfeat.schedules.design_space import replay

        parents = [trace for trace, _ in space.sample(2, seed=5)]
        found = [trace for trace, _ in space.vary(parents, 10, seed=6)]
        assert found == [trace for trace, _ in space.vary(parents, 10, seed=6)]
        assert len(found) == len(set(found)) == 10
        assert not set(found) & set(parents)
        for trace in found:
            replay(space.module, trace)

    def test_a_small_space_ends(self, device):
        import kernels

        from hetfeat.schedules.design_space import TaskSpace
        from hetfeat.workloads.relax import as_target

        small = TaskSpace(kernels.scaled(2.0), as_target(device.target), 64)
        assert 1 <= len(list(small.sample(200, seed=0))) < 200
