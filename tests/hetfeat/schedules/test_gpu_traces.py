"""What a trace asks of a GPU's block, told without applying it."""

import itertools
import json
import random

import numpy as np
import pytest

from hetfeat.schedules import trace as traces
from hetfeat.schedules.shared_memory import Read, SharedMemory
from hetfeat.schedules.threads import first_kept, keeps_to_threads

COLUMNS, ROWS = [2, 1, 4, 1, 8], [1, 2, 16, 1, 1]
"""Factors of a product of 64 x 32: blocks, virtual threads, threads, and two loops inside."""
SUM = [4, 2, 8]


def product(columns=COLUMNS, rows=ROWS, summed=SUM, *more):
    """The trace of a tiled matrix product, its operands copied to shared memory."""
    instructions = [
        ["GetSBlock", [], ["product", "main"], ["b1"]],
        ["Annotate", ["b1", '"SSSRRSRS"'], ["meta_schedule.tiling_structure"], []],
        ["GetLoops", ["b1"], [], ["columns", "rows", "summed"]],
    ]
    decisions = []
    for loop, factors in (("columns", columns), ("rows", rows), ("summed", summed)):
        tiles = [f"v_{loop}_{level}" for level in range(len(factors))]
        parts = [f"l_{loop}_{level}" for level in range(len(factors))]
        decisions.append([len(instructions), factors])
        instructions += [
            ["SamplePerfectTile", [loop], [len(factors), 64], tiles],
            ["Split", [loop, *tiles], [True, False], parts],
        ]
    for level, thread in enumerate(("blockIdx.x", "vthread.x", "threadIdx.x")):
        fused = [f"l_columns_{level}", f"l_rows_{level}"]
        instructions += [
            ["Fuse", fused, [1], [thread]],
            ["Bind", [thread], [thread], []],
        ]
    instructions += [
        ["Annotate", ["b1", 32], ["meta_schedule.thread_extent_low_inclusive"], []],
        ["Annotate", ["b1", 1024], ["meta_schedule.thread_extent_high_inclusive"], []],
        ["CacheRead", ["b1", ["b1"]], [0, "shared"], ["b2"]],
        ["CacheRead", ["b1", ["b1"]], [1, "shared"], ["b3"]],
    ]
    return [[*instructions, *more], decisions]


class TestThreads:
    @pytest.mark.parametrize(
        ("columns", "rows", "kept"),
        [
            (COLUMNS, ROWS, True),
            ([2, 1, 2, 1, 16], ROWS, True),
            ([2, 1, 1, 1, 32], ROWS, False),  # 16 threads
            ([1, 1, 64, 1, 1], ROWS, True),
            ([1, 1, 64, 1, 1], [1, 1, 32, 1, 1], False),  # 2048
            ([2, 4, 4, 1, 2], ROWS, True),
            ([2, 8, 4, 1, 1], ROWS, False),  # 16 virtual threads
        ],
    )
    def test_a_block_has_as_many_as_the_trace_allows(self, columns, rows, kept):
        assert keeps_to_threads(product(columns, rows)) == kept

    def test_a_trace_without_threads_keeps_to_them(self):
        instructions, decisions = product([1, 1, 1, 1, 64], ROWS)
        unbound = [one for one in instructions if one[0] != "Bind"]
        assert keeps_to_threads([unbound, decisions])

    def test_what_a_trace_does_not_tell_is_not_refused(self):
        instructions, _ = product([1, 1, 1, 1, 64], ROWS)
        assert keeps_to_threads([instructions, []])


class TestDrawing:
    def test_the_first_that_is_kept_is_drawn(self):
        numbers = itertools.count()
        assert first_kept(lambda: [next(numbers)], lambda trace: trace[0] > 20) == [21]

    def test_it_ends_where_none_is_kept(self):
        drawn = itertools.count()
        assert first_kept(lambda: [next(drawn)], lambda _: False, draws=7) is None
        assert next(drawn) == 7

    def test_it_ends_where_there_is_none_to_draw(self):
        assert first_kept(lambda: None, lambda _: True) is None


class TestSharedMemory:
    # A tile of 32 columns, 32 rows and 16 summed: 16 x 32 and 32 x 16 elements of 4 bytes.
    NEEDED = 2 * 32 * 16 * 4
    READS = (
        Read(np.array([[0, 1, 0], [0, 0, 1]]), 4),
        Read(np.array([[0, 0, 1], [1, 0, 0]]), 4),
    )
    PIPELINE = ("Annotate", ["l_summed_0", [0, 0, 2]], ["software_pipeline_stage"], [])

    @pytest.mark.parametrize(("limit", "holds"), [(NEEDED, True), (NEEDED - 1, False)])
    def test_tiles_of_the_operands_must_find_room(self, limit, holds):
        assert SharedMemory(limit, lambda _: self.READS).holds(product()) == holds

    @pytest.mark.parametrize(("limit", "holds"), [(3 * NEEDED, True), (3 * NEEDED - 1, False)])
    def test_each_stage_of_a_pipeline_has_its_own(self, limit, holds):
        trace = product(COLUMNS, ROWS, SUM, self.PIPELINE)
        assert SharedMemory(limit, lambda _: self.READS).holds(trace) == holds

    def test_windows_overlap(self):
        window = Read(np.array([[2, 1, 0], [0, 0, 1]]), 4)  # at stride 2
        assert window.tile_bytes([5, 3, 16]) == (2 * 4 + 2 + 1) * 16 * 4

    def test_an_operand_that_is_not_understood_is_not_counted(self):
        half = SharedMemory(self.NEEDED // 2, lambda _: (None, self.READS[1]))
        assert half.holds(product())


def kernels_for_gpus():
    from tvm import te, topi

    image = te.placeholder((1, 14, 14, 64), name="image")
    window = te.placeholder((3, 3, 64, 64), name="window")
    strided = topi.nn.conv2d(image, window, 2, 1, 1, "NHWC", "HWIO", "float32")
    a, b = te.placeholder((32, 96), name="a"), te.placeholder((64, 96), name="b")
    return {
        "convolution": te.create_prim_func([image, window, topi.nn.relu(strided)]),
        "product": te.create_prim_func([a, b, topi.nn.dense(a, b)]),
    }


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.parametrize("name", ["convolution", "product"])
def test_tvm_refuses_what_is_not_kept_and_nothing_else(name):
    import tvm
    from tvm.s_tir.schedule import Trace as TvmTrace

    from hetfeat.devices.presets import preset
    from hetfeat.schedules.design_space import TaskSpace
    from hetfeat.workloads.relax import as_target

    target = as_target(preset("nvidia-t4").target | {"arch": "sm_90"})
    space = TaskSpace(tvm.IRModule({"main": kernels_for_gpus()[name]}), target, 64)
    rng = random.Random(0)
    outcomes = []
    for number in range(36):
        given = json.loads(traces.dump(space._sketches[number % len(space._sketches)].as_json()))
        drawn = traces.drawn_anew(given, rng)
        if number % 2:
            drawn = first_kept(lambda given=given: traces.drawn_anew(given, rng), space._keeps)
        schedule = space._blank(rng)
        TvmTrace.apply_json_to_schedule(drawn, schedule)
        outcomes.append((space._keeps(drawn), space._finish(schedule)))
    assert {kept for kept, _ in outcomes} == {True, False}
    assert [kept for kept, _ in outcomes] == [applied for _, applied in outcomes]
