"""Schedules of other tasks as a start: carried over by hand, from a store, and with TVM."""

import dataclasses
import json
import math
from functools import partial

import pytest
import stores
from hypothesis import given
from hypothesis import strategies as st

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.store import RecordStore
from hetfeat.errors import DataError
from hetfeat.measure.local import LocalMeasurer
from hetfeat.records import Task
from hetfeat.transfer.schedule_library import (
    Donor,
    ScheduleLibrary,
    carry_over,
    nearest_factors,
    warm_starts_of,
)


@given(st.lists(st.integers(1, 64), min_size=1, max_size=4), st.integers(1, 2048))
def test_factors_always_cover_the_extent(factors, extent):
    found = nearest_factors(factors, extent)
    assert math.prod(found) == extent
    assert len(found) == len(factors)


@pytest.mark.parametrize(
    "trace",
    [
        "no JSON",
        "[]",
        "[[],[[0,1]]]",
        "[[[1,[],[],[]]],[]]",
        '[[["SamplePerfectTile",[],[2,64],[]]],[[0,[0,8]]]]',
        '[[["SamplePerfectTile",[],[2,64],[]]],[[0,8]]]',
        '[[["SampleCategorical",[],[[1],[1]],[]]],[[0,1],[0,null]]]',
    ],
)
def test_a_record_whose_trace_is_none_gives_nothing(trace):
    with pytest.raises(DataError, match="leave the record out"):
        carry_over(trace, ["[[],[]]"])


@pytest.mark.parametrize(
    ("factors", "extent", "wanted"),
    [
        ([2, 4, 1, 16], 128, [2, 4, 1, 16]),  # the same extent: nothing changes
        ([2, 4, 1, 16], 256, [4, 4, 1, 16]),  # the outermost takes what is left
        ([7, 8], 49, [7, 7]),  # 8 is no divisor of 49
        ([1, 16], 6, [1, 6]),
        ([4, 1, 3], 7, [1, 1, 7]),  # as a ratio, 3 is nearer to 7 than to 1
    ],
)
def test_factors_by_hand(factors, extent, wanted):
    assert nearest_factors(factors, extent) == wanted


def trace(tile: list[int], unroll: int, location: int | None = None, levels: int = 64) -> str:
    instructions = [
        ["GetSBlock", [], ["conv"], ["b0"]],
        ["SamplePerfectTile", ["l1"], [len(tile), levels], ["v1"]],
        ["SampleComputeLocation", ["b0"], [], ["l2"]],
        ["SampleCategorical", [], [[0, 16, 64], [0.3, 0.3, 0.4]], ["v2"]],
        ["EnterPostproc", [], [], []],
        ["Unroll", ["l1"], [], []],
    ]
    decisions = [[1, tile], *([[2, location]] if location is not None else []), [3, unroll]]
    return json.dumps([instructions, decisions])


def test_decisions_are_carried_over_and_locations_left_open():
    found = json.loads(carry_over(trace([2, 16], 2, location=1), [trace([6, 8], 0, location=0)]))
    instructions, decisions = found
    assert [one[0] for one in instructions][-1] == "SampleCategorical"  # no post-processing
    assert decisions == [[1, [3, 16]], [3, 2]]


def test_the_innermost_factor_stays_within_the_skeletons_limit():
    def decisions(levels: int) -> list:
        skeleton = trace([8, 10], 0, levels=levels)
        return json.loads(carry_over(trace([1, 64], 2), [skeleton]))[1]

    assert decisions(0) == [[1, [1, 80]], [3, 2]]
    assert decisions(64) == [[1, [2, 40]], [3, 2]]


def test_a_skeleton_that_does_not_fit_is_passed_over():
    donor = trace([2, 16], 2)
    assert carry_over(donor, [trace([2, 2, 12], 0)]) is None
    found = json.loads(carry_over(donor, [trace([2, 2, 12], 0), trace([6, 8], 0)]))
    assert found[1] == [[1, [3, 16]], [3, 2]]


def conv(name: str, side: int, channels: int) -> Task:
    return Task(name, "conv2d", ((1, side, side, 64), (3, 3, 64, channels)), "float32", 1.0)


def test_the_nearest_come_first_each_with_its_best():
    wanted = conv("wanted", 28, 64)
    donors = [
        Donor(conv("twice", 28, 128), "a", "twice, slow", 2.0),
        Donor(conv("twice", 28, 128), "a", "twice, fast", 1.0),
        Donor(conv("far", 7, 512), "a", "far", 1.0),
        Donor(wanted, "b", "itself", 1.0),
        Donor(Task("other", "matmul", wanted.shapes, "float32", 1.0), "a", "other", 1.0),
    ]
    found = [d.trace for d in ScheduleLibrary(donors).nearest(wanted, 10)]
    assert found == ["itself", "twice, fast", "twice, slow", "far"]
    assert len(ScheduleLibrary(donors).nearest(wanted, 2)) == 2


def test_the_device_s_own_come_first_and_a_program_comes_once():
    task = conv("wanted", 28, 64)
    fast_on = {"b": ("both", "only there"), "a": ("both", "only here")}
    donors = [
        Donor(task, device, trace, 1.0 + turn)
        for device, fast in fast_on.items()
        for turn, trace in enumerate(fast)
    ]
    found = ScheduleLibrary(donors, "a").nearest(task, 10)
    assert [(d.device, d.trace) for d in found] == [
        ("a", "both"),
        ("a", "only here"),
        ("b", "only there"),
    ]


def timed(side: int, seconds: float, device: str = "a", window: int = 3) -> Donor:
    shapes = ((1, side, side, 64), (window, window, 64, 64))
    return Donor(Task(f"{side} {window}", "conv2d", shapes, "float32", 2.0), device, "", seconds)


def test_a_task_is_expected_to_keep_the_pace_of_its_nearest():
    wanted = conv("wanted", 28, 64)  # of 1 FLOP, where each of the others has 2
    near = [timed(side, seconds) for side, seconds in ((28, 8.0), (56, 2.0), (14, 2.0), (7, 8.0))]
    slower = timed(28, 99.0)
    of_others = [timed(28, 0.1, window=1), timed(224, 0.1), *(timed(28, 0.1, "b"),) * 9]
    library = ScheduleLibrary([slower, *near, *of_others], "a")
    assert library.expected_s(wanted) == pytest.approx(4.0 / 2)
    assert ScheduleLibrary([*near, timed(28, 0.1, "b")], "c").expected_s(wanted) == pytest.approx(
        2.0
    )
    assert ScheduleLibrary([timed(28, 0.1, window=1)], "a").expected_s(wanted) == math.inf
    assert ScheduleLibrary([]).expected_s(wanted) == math.inf


def test_a_library_withholds_the_device_s_own_records_of_the_network(tmp_path):
    store = stores.make_store(tmp_path / "records", devices=("a", "b"), tasks=2)
    held, other = stores.task(0), stores.task(1)
    library = ScheduleLibrary.of(store, "a", [held])
    assert {d.device for d in library.nearest(held, 99)} == {"b"}
    assert {d.device for d in library.nearest(other, 99)} == {"a"}  # b ran the same programs
    found = library.nearest(held, 99)
    assert [d.latency_s for d in found] == sorted(d.latency_s for d in found)


def test_what_differs_only_in_its_fusion_is_withheld_too(tmp_path):
    store = stores.make_store(tmp_path / "records", devices=("a", "b"), tasks=2)
    held = stores.task(0)
    fused = dataclasses.replace(held, hash="with relu", shapes=(*held.shapes, (1, 1)))
    library = ScheduleLibrary.of(store, "a", [fused])
    assert {d.device for d in library.nearest(held, 99)} == {"b"}


@pytest.mark.slow
@pytest.mark.tvm
def test_programs_of_other_convolutions_apply_and_run(device):
    """A task of the packaged data starts from the others; TVM takes nearly all of them."""
    store = RecordStore.open(packaged_store())
    name = "amd-epyc-znver5-avx512-2t"
    modules = store.workloads()
    rows = store.read(["task", "operator", "shapes", "dtype", "flops"]).to_pylist()
    tasks = {
        row["task"]: Task(
            row["task"],
            row["operator"],
            tuple(map(tuple, json.loads(row["shapes"]))),
            row["dtype"],
            row["flops"],
        )
        for row in rows
        if row["operator"] == "conv2d"
    }
    # Of one row: with 16 vector registers others have custom sketches alone, which no record is of.
    small = [key for key in sorted(tasks) if tasks[key].shapes[0][1:3] == (1, 1)]
    chosen = [tasks[key] for key in small[:3]]
    library = ScheduleLibrary.of(store, name, chosen)
    with LocalMeasurer(device) as measurer:
        for task in chosen:
            measurer.add_task(task, modules[task.hash])
            found = warm_starts_of(library, task, measurer, partial(measurer.sample, task, 8, 0))
            assert len(found) >= 6
            assert any(m.latency_s for m in measurer.measure(found[:2]))
        wrong = json.dumps([[["GetSBlock", [], ["no_such_block", "main"], ["b0"]]], []])
        torn = json.dumps([[["NoSuchInstruction", [], [], []]], []])
        assert measurer.apply(task, [wrong, torn]) == []
