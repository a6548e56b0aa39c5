"""The steps of an auto-scheduler's record: traces worked out by hand, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ansor_lines import line, read

from hetfeat.dataset.importers import ansor_steps


def trace_of(folder: Path, *steps: list[Any]) -> list[Any]:
    (found,), skipped = read(folder, [line(list(steps))])
    assert not skipped
    return json.loads(found.program.trace)


class TestTraces:
    """Worked out by hand from what the steps mean."""

    def test_a_tiled_loop_nest(self, tmp_path):
        assert trace_of(
            tmp_path,
            ["SP", 2, 0, 64, [2, 8], 1],
            ["SP", 2, 3, 100, [8], 0],
            ["RE", 2, [0, 3, 1, 2, 4]],
            ["FU", 2, [0, 1]],
            ["AN", 2, 0, 3],
            ["AN", 2, 3, 2],
            ["PR", 2, 0, "auto_unroll_max_step$16"],
        ) == [
            [
                ["GetSBlock", [], ["stage2", "main"], ["b0"]],
                ["GetLoops", ["b0"], [], ["l1", "l8"]],
                ["SamplePerfectTile", ["l1"], [3, 64], ["v2", "v3", "v4"]],
                ["Split", ["l1", "v2", "v3", "v4"], [1, 0], ["l5", "l6", "l7"]],
                ["SamplePerfectTile", ["l8"], [2, 64], ["v9", "v10"]],
                ["Split", ["l8", "v9", "v10"], [1, 0], ["l11", "l12"]],
                ["Reorder", ["l5", "l11", "l6", "l7", "l12"], [], []],
                ["Fuse", ["l5", "l11"], [1], ["l13"]],
                ["Parallel", ["l13"], [], []],
                ["Vectorize", ["l12"], [], []],
                ["Annotate", ["l13", 16], ["pragma_auto_unroll_max_step"], []],
            ],
            # 64 = 4 * 2 * 8; the other from the outside: 8 * 13 covers 100.
            [[2, [4, 2, 8]], [4, [8, 13]]],
        ]

    def test_stages_move_and_splits_are_followed(self, tmp_path):
        assert trace_of(
            tmp_path,
            ["CHW", 1, "local"],
            ["SP", 1, 0, 48, [3, 2, 4], 1],
            ["FSP", 2, 0, 1, 2],
            ["CA", 1, 2, 1],
            ["CHR", 0, "shared", [1]],
            ["FFSP", 1, 0, [1], 2, 1],
            ["FFSP", 1, 2, [1, 1], 0, 0],
            ["AN", 1, 1, 6],
            ["SA", 1, 0, 8, 1],
        ) == [
            [
                ["GetSBlock", [], ["stage1", "main"], ["b0"]],
                ["CacheWrite", ["b0", []], [0, "local"], ["b1"]],
                # The cache computes, now stage 1; what copies has become stage 2.
                ["GetLoops", ["b0"], [], ["l2"]],
                ["SamplePerfectTile", ["l2"], [4, 64], ["v3", "v4", "v5", "v6"]],
                ["Split", ["l2", "v3", "v4", "v5", "v6"], [1, 0], ["l7", "l8", "l9", "l10"]],
                ["GetLoops", ["b1"], [], ["l11"]],
                # Two parts of three: the inner ones as one, 2 * 4.
                ["Split", ["l11", 2, 3, 8], [1, 0], ["l12", "l13", "l14"]],
                ["ComputeAt", ["b0", "l13"], [1, -1], []],
                ["GetSBlock", [], ["stage0", "main"], ["b15"]],
                ["CacheRead", ["b15", ["b0"]], [0, "shared"], ["b16"]],
                ["GetLoops", ["b16"], [], ["l17", "l20"]],
                ["Split", ["l17", "None", 4], [1, 0], ["l18", "l19"]],
                ["Split", ["l20", 9, "None"], [1, 0], ["l21", "l22"]],
                ["Bind", ["l19"], ["threadIdx.x"], []],
                ["StorageAlign", ["b16"], [0, 0, 8, 1], []],
            ],
            [[3, [2, 3, 2, 4]]],
        ]

    def test_reductions_in_parts(self, tmp_path):
        assert trace_of(
            tmp_path,
            ["SP", 1, 1, 64, [8], 1],
            ["RF", 1, 2, 1],
            ["RE", 1, [0, 2, 1]],
            ["CI", 0],
            ["CR", 0],
            ["CA", 1, 2, 0],
        ) == [
            [
                ["GetSBlock", [], ["stage1", "main"], ["b0"]],
                ["GetLoops", ["b0"], [], ["l1", "l2"]],
                ["SamplePerfectTile", ["l2"], [2, 64], ["v3", "v4"]],
                ["Split", ["l2", "v3", "v4"], [1, 0], ["l5", "l6"]],
                ["RFactor", ["l6"], [1], ["b7"]],
                ["GetLoops", ["b7"], [], ["l8", "l9", "l10"]],
                ["Reorder", ["l8", "l10", "l9"], [], []],
                ["GetSBlock", [], ["stage0", "main"], ["b11"]],
                ["ComputeInline", ["b11"], [], []],
                ["ComputeRoot", ["b11"], [], []],
                ["GetLoops", ["b0"], [], ["l12"]],
                ["ComputeAt", ["b7", "l12"], [1, -1], []],
            ],
            [[3 - 1, [8, 8]]],
        ]

    def test_an_extent_that_is_not_given_follows_or_is_zero(self, tmp_path):
        _, decisions = trace_of(
            tmp_path, ["SP", 0, 0, 12, [4], 1], ["SP", 0, 1, 0, [2], 1], ["SP", 0, 3, 0, [5], 1]
        )
        assert [factors for _, factors in decisions] == [[3, 4], [2, 2], [0, 5]]

    def test_programs_of_one_sketch_keep_their_own_numbers(self, tmp_path):
        lines = [
            line([["SP", 0, 0, 2 * n, [n], 1], ["PR", 0, 1, f"auto_unroll_max_step${n}"]])
            for n in range(1, 40)
        ]
        found, _ = read(tmp_path, lines)
        for n, measurement in enumerate(found, 1):
            instructions, decisions = json.loads(measurement.program.trace)
            assert decisions == [[2, [2, n]]]
            assert instructions[-1][1][1] == n

    def test_the_loop_nest_is_known(self):
        steps = [
            ["SP", 0, 0, 64, [2, 8], 1],
            ["FU", 0, [0, 1]],
            ["AN", 0, 0, 5],
            ["AN", 0, 1, 2],
            ["CA", 1, 0, 0],
        ]
        numbers = np.array([[64, 2, 8], [48, 4, 4]], np.float64)
        assert ansor_steps.take_numbers(steps) == [64, 2, 8]
        nest = ansor_steps.Interpreter(numbers)
        nest.run(steps)
        outer, inner = nest.stages[0].loops
        assert (outer.annotation, inner.annotation) == ("blockIdx.x", "vectorize")
        assert (outer.extent.tolist(), inner.extent.tolist()) == ([8, 12], [8, 4])
        assert nest.stages[1].at == (nest.stages[0], outer)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([["SP", 0, 0, 64, [8], 1], ["SP", 0, 1, 9, [3], 1]], "split of another extent"),
        ([["SP", 0, 0, 64, [0], 1]], "split by a factor below one"),
        ([["SP", 0, 0, 64, [-8], 1]], "split by a factor below one"),
        ([["SP", 0, 0, -64, [8], 1]], "split of a negative or boundless extent"),
        ([["SP", 0, 0, 64, [2**40, 2**40], 1]], "extent beyond all bounds"),
        ([["SP", 0, 0, 64, [], 1]], "SP of no parts or too many"),
        ([["SP", 0, 0, 64, [2.0], 1]], "split by what is no whole number"),
        ([["SP", 0, 0, 64, [True], 1]], "split by what is no whole number"),
        ([["SP", 0, 0, 64, ["2"], 1]], "split by what is no whole number"),
        ([["SP", 0, 0, 64, 2, 1]], "steps of another form"),
        ([["SP", 0, 0, 64]], "steps of another form"),
        ([[]], "steps of another form"),
        ("ab", "steps of another form"),
        ([["SP", 600, 0, 64, [2], 1]], "stage that does not exist"),
        ([["AN", 0, -1, 2]], "iterator that does not exist"),
        ([["RE", 0, [1, 0]], ["AN", 0, 2, 2]], "iterator that does not exist"),
        ([["AN", 0, 3, 2], ["RE", 0, [1, 0]]], "RE that is no permutation of the iterators"),
        ([["RE", 0, [0, 2]]], "RE that is no permutation of the iterators"),
        ([["FU", 0, [0, 2]]], "FU of iterators that are not consecutive"),
        ([["FU", 0, []]], "list of ids that is none"),
        ([["FSP", 0, 0, 0, 1]], "split that follows no split"),
        ([["SP", 0, 0, 8, [2], 1], ["FSP", 1, 0, 0, 3]], "FSP of more parts than its split has"),
        (
            [["SP", 0, 0, 8, [2], 1], ["FFSP", 1, 0, [0], 1, 1]],
            "FFSP of a level that its splits have not",
        ),
        ([["SP", 0, 0, 8, [2], 1], ["FFSP", 1, 0, ["0"], 0, 1]], "split that follows no split"),
        ([["AN", 0, 0, 12]], "annotation of an unknown kind"),
        ([["AN", 0, 0]], "AN with other arguments"),
        ([["AN", 0, True, 2]], "AN with other arguments"),
        ([["CI", 0], ["AN", 0, 0, 2]], "step on a stage that was inlined"),
        ([["CA", 0, 0, 0]], "CA of a stage at itself"),
        ([["PR", 0, 0, "auto_unroll_max_step$"]], "PR of an unknown form"),
        ([["PR", 0, 0, "auto_unroll_max_step$N"]], "PR of an unknown form"),
        ([["PR", 0, 0, 'a"b']], "PR of an unknown form"),
        ([["CHR", 0, 'sha"red', [1]]], "memory scope that is none"),
        ([["XX", 0]], "step of an unknown kind"),
        ([[["SP"], 0]], "step of an unknown kind"),
    ],
)
def test_steps_that_do_not_interpret(tmp_path, steps, reason):
    found, skipped = read(tmp_path, [line([["AN", 0, 0, 3]]), line(steps)])
    assert len(found) == 1
    assert skipped == {reason: 1}
