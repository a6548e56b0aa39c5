"""What a trace's decisions say of the registers that its sums take."""

import pytest

from hetfeat.devices.profile import DeviceProfile
from hetfeat.measure.worker_pool import PoolOptions
from hetfeat.schedules.registers import VectorUnit, is_shared, sums_of, unit_of

AVX2, AVX512, FULL_RATE = VectorUnit(8, 16), VectorUnit(16), VectorUnit(16, full_rate=True)


def block(rows, vectors, vector=8):
    """The trace of a custom sketch whose innermost block has so many rows and vectors."""
    instructions = [
        ["GetSBlock", [], ["out", "main"], ["b1"]],
        ["GetLoops", ["b1"], [], ["l2", "l3"]],
        ["SamplePerfectTile", ["l2"], [2, 16], ["v4", "v5"]],
        ["Split", ["l2", "v4", "v5"], [True, False], ["l6", "l7"]],
        ["Split", ["l3", "None", vector], [True, False], ["l8", "l9"]],
        ["Vectorize", ["l9"], [], []],
        ["SamplePerfectTile", ["l8"], [2, 4], ["v10", "v11"]],
        ["Split", ["l8", "v10", "v11"], [True, False], ["l12", "l13"]],
        ["Unroll", ["l7"], [], []],
        ["Unroll", ["l13"], [], []],
        ["Parallel", ["l6"], [], []],
        ["GetLoops", ["b1"], [], ["l14", "l15"]],
        ["Unroll", ["l14"], [], []],  # its extent follows from the others
        ["Split", ["l15", "None", 32], [True, False], ["l16", "l17"]],
        ["Vectorize", ["l17"], [], []],
        ["EnterPostproc", [], [], []],
        ["Unroll", ["l16"], [], []],
    ]
    return [instructions, [[2, [9, rows]], [6, [5, vectors]]]]


@pytest.mark.parametrize(
    ("rows", "vectors", "vector", "sums"),
    [(6, 2, 8, 12), (4, 3, 8, 12), (7, 1, 8, 7), (7, 1, 32, 28), (6, 2, 4, 12)],
)
def test_sums_are_rows_times_vectors_times_their_registers(rows, vectors, vector, sums):
    assert sums_of(block(rows, vectors, vector), 8) == sums


def test_half_a_register_is_enough_where_it_is_wide():
    assert (AVX2.narrowest, AVX512.narrowest) == (8, 8)
    assert [VectorUnit(lanes).narrowest for lanes in (1, 4)] == [1, 4]  # NEON has 32, too


def test_rows_that_are_drawn_of_a_few_numbers_count():
    instructions, decisions = block(1, 2)
    instructions[2:4] = [
        ["SampleCategorical", [], [[4, 6], [0.5, 0.5]], ["v4"]],
        ["Split", ["l2", "None", "v4"], [True, False], ["l6", "l7"]],
    ]
    assert sums_of([instructions, [[2, 1], decisions[1]]], 8) == 12


@pytest.mark.parametrize(
    ("rows", "vectors", "holds", "fills"),
    [
        (6, 2, True, True),
        (4, 3, True, True),
        (13, 1, True, True),
        (7, 2, False, False),
        (3, 4, False, False),  # four vectors of weights, and a value of the data
        (2, 4, True, True),
        (2, 2, True, False),
    ],
)
def test_sixteen_registers_hold_sums_beside_their_operands(rows, vectors, holds, fills):
    trace = block(rows, vectors)
    assert (AVX2.holds(trace), AVX2.holds(trace, fewest=6)) == (holds, fills)
    assert AVX512.holds(trace)


@pytest.mark.parametrize(
    ("rows", "vectors", "holds"),
    [(6, 2, True), (14, 2, True), (7, 4, False), (16, 2, False), (4, 2, False)],
)
def test_at_the_full_rate_32_registers_are_filled_too(rows, vectors, holds):
    assert FULL_RATE.holds(block(rows, vectors, vector=16), fewest=12) is holds


def test_steps_that_are_unrolled_are_no_sums():
    instructions, decisions = block(6, 2)
    steps = [["Split", ["l14", "None", 4], [True, False], ["l18", "l19"]]]
    unrolled = [*instructions[:12], *steps, ["Unroll", ["l19"], [], []], *instructions[12:]]
    assert sums_of([unrolled, decisions], 8) == 12


@pytest.mark.parametrize(("times", "shared"), [(1, False), (2, True)])
def test_a_loop_for_all_cores_runs_more_than_once(times, shared):
    instructions, [[at, [_, rows]], vectors] = block(6, 2)
    decisions = [[at, [times, rows]], vectors]
    assert is_shared([instructions, decisions]) is shared
    assert AVX2.holds([instructions, decisions]) is shared
    fused = [["Fuse", ["l6", "l12"], [True], ["l18"]], ["Parallel", ["l18"], [], []]]
    of_both = [one for one in instructions if one[0] != "Parallel"][:10] + fused
    assert is_shared([of_both, [[at, [1, rows]], vectors]])  # five vectors are shared


def test_a_loop_of_unknown_length_may_be_for_all_cores():
    instructions, decisions = block(6, 2)
    instructions[10] = ["Parallel", ["l3"], [], []]
    assert is_shared([instructions, decisions])


def test_what_is_not_drawn_is_not_judged():
    instructions, decisions = block(16, 4)
    rolled = [one for one in instructions if one[0] != "Unroll"]
    assert sums_of([rolled, decisions], 8) is None
    assert AVX2.holds([rolled, decisions], fewest=6)
    assert AVX2.holds([instructions, []])


@pytest.mark.parametrize(
    ("family", "vector_bytes", "unit"),
    [
        ("cpu-x86", 64, AVX512),
        ("cpu-x86", 32, AVX2),
        ("cpu-x86", 4, VectorUnit(1, 16)),
        ("cpu-x86", None, VectorUnit(1)),
        ("cpu-arm", 16, VectorUnit(1)),
        ("gpu-nvidia", None, VectorUnit(1)),
    ],
)
def test_a_profile_tells_the_registers(family, vector_bytes, unit):
    target = {"kind": "cuda" if family == "gpu-nvidia" else "llvm"}
    profile = DeviceProfile("d", family, target, threads=1, vector_unit_bytes=vector_bytes)
    assert unit_of(profile) == unit


@pytest.mark.parametrize(
    ("vector_bytes", "peak", "scalars", "full"),
    [
        (64, 233.5, 29.14, False),  # Zen 4
        (64, 447.8, 32.11, True),  # Zen 5
        (64, 352.2, 26.92, True),  # an Intel with AMX
        (32, 206.8, 27.04, True),
        (64, 352.2, None, False),
        (64, None, 26.92, False),
    ],
)
def test_a_profile_tells_the_rate_of_vectors(vector_bytes, peak, scalars, full):
    figures = {"peak_gflops": peak, "scalar_gflops": scalars, "vector_unit_bytes": vector_bytes}
    profile = DeviceProfile("d", "cpu-x86", {"kind": "llvm"}, threads=2, **figures)
    assert unit_of(profile).full_rate is full
    assert PoolOptions().start(profile).full_rate is full


def test_sketches_that_can_not_fill_the_registers_ask_no_task_to():
    assert AVX2.fewest_of([block(6, 2)]) == 12
    assert AVX2.fewest_of([block(6, 2), block(2, 1, vector=4)]) == 6
    assert AVX2.fewest_of([block(6, 2), block(1, 1, vector=4)]) == 0  # nine rows: one core's work
    few = [[["SamplePerfectTile", ["l1"], [1, 16], ["v1"]], ["Unroll", ["v1"], [], []]], [[0, [1]]]]
    assert AVX2.fewest_of([block(6, 2), few]) == 0
    assert AVX512.fewest_of([block(6, 2)]) == 0
    assert FULL_RATE.fewest_of([block(6, 2, vector=16)]) == 12


def test_products_of_integers_are_not_asked_for_as_many_sums():
    instructions, decisions = block(6, 2)
    tensorized = [*instructions[:9], ["Tensorize", ["l9"], ["dot"], []], *instructions[9:]]
    assert AVX2.fewest_of([[tensorized, decisions]]) == 6
    assert FULL_RATE.fewest_of([[tensorized, decisions]]) == 0
    assert FULL_RATE.holds([tensorized, decisions], fewest=100)
