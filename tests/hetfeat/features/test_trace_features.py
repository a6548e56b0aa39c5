"""Traces as numbers: by hand, on the packaged records, and on the auto-scheduler's."""

import json
import random
from pathlib import Path

import ansor_lines
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hetfeat.dataset.packaged
from hetfeat.dataset.importers import ansor
from hetfeat.dataset.store import RecordStore
from hetfeat.errors import DataError
from hetfeat.features import trace as features
from hetfeat.features.columns import PRIMITIVES, TRACE, labels
from hetfeat.features.trace import steps_and_vectors
from hetfeat.features.trace_groups import grouped
from hetfeat.schedules import trace as traces

AT = {column.name: number for number, column in enumerate(TRACE)}


@pytest.fixture(scope="module")
def packaged():
    """The column of traces of our own MetaSchedule records."""
    (folder,) = hetfeat.dataset.packaged.__path__
    return RecordStore.open(Path(folder)).read(["trace"])["trace"].slice(0, 1500)


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Traces of generated records of the auto-scheduler, for CPU and GPU."""
    log = tmp_path_factory.mktemp("log") / "log"
    made = [*ansor_lines.log(100, 1), *ansor_lines.log(100, 1, ansor_lines.on_gpu)]
    log.write_bytes(b"\n".join(made))
    return [t for batch in ansor.read([log], "a") for t in batch.records["trace"].to_pylist()]


TILED = [
    [
        ["GetSBlock", [], ["matmul", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1", "l2"]],
        ["SamplePerfectTile", ["l1"], [3, 64], ["v3", "v4", "v5"]],
        ["Split", ["l1", "v3", "v4", "v5"], [1, 0], ["l6", "l7", "l8"]],
        ["Reorder", ["l6", "l8", "l7"], [], []],
        ["Fuse", ["l6", "l8"], [1], ["l9"]],
        ["Bind", ["l9"], ["threadIdx.x"], []],
        ["SampleCategorical", [], [[0, 16, 64], [0.3, 0.3, 0.4]], ["v10"]],
        ["Annotate", ["b0", "v10"], ["meta_schedule.unroll_explicit"], []],
        ["CacheRead", ["b0", ["b0"]], [1, "shared"], ["b11"]],
        ["EnterPostproc", [], [], []],
        ["Split", ["l9", "None", 7], [1, 0], ["l12", "l13"]],
        ["Vectorize", ["l13"], [], []],
        ["Novelty", ["l12"], [], []],
    ],
    [[2, [3, 1, 15]], [7, 2]],
]


def scaled(*values: float) -> list[float]:
    return [float(np.sign(v) * np.log2(1 + abs(v))) for v in values]


class TestByHand:
    def test_a_sequence(self):
        (sequence,) = features.sequences([json.dumps(TILED)], (7, 6))

        def number(kind: str) -> int:
            return PRIMITIVES.index(kind) + 1

        shared, unroll = features._WORDS["shared"], features._WORDS["meta_schedule.unroll_explicit"]
        expected = [
            [number("Split"), 0, *scaled(3, 1, 15, 0)],
            [number("Reorder"), 0, *scaled(0, 2, 1, 0)],
            [number("Fuse"), 0, *scaled(2, 45, 0, 0)],
            [number("Bind"), features._WORDS["threadIdx.x"], *scaled(45, 0, 0, 0)],
            [number("Annotate"), unroll, *scaled(64, 0, 0, 0)],
            [number("CacheRead"), shared, *scaled(1, 0, 0, 0)],
            [0.0] * 6,
        ]
        np.testing.assert_allclose(sequence, expected, rtol=1e-6)

    def test_a_sequence_is_cut(self):
        whole = features.sequences([json.dumps(TILED)], (7, 6))
        np.testing.assert_array_equal(
            features.sequences([json.dumps(TILED)], (2, 4)), whole[:, :2, :4]
        )

    def test_a_vector(self):
        (vector,) = features.vectors([json.dumps(TILED)])
        expected = {
            **{f"primitive_{kind}": 1 for kind in ("Reorder", "Fuse", "Bind", "Annotate")},
            **{f"primitive_{kind}": 1 for kind in ("CacheRead", "Vectorize", "other")},
            "primitive_Split": 2,
            "split0_factor0": 15,
            "split0_factor1": 1,
            "split0_factor2": 3,
            "split1_factor0": 7,
            "split1_factor1": 7,  # 45 in steps of 7
            "factor0_product": 15 * 7,
            "factor1_product": 7,
            "factor2_product": 3,
            "factor3_product": 1,
            "factor4_product": 1,
            "bind_threadIdx.x_extent": 45,
            "cache_shared": 1,
            "vectorize_extent": 7,
            "lanes_extent": 45,
            "unroll_max_step": 64,
        }
        found = {name: float(vector[at]) for name, at in AT.items() if vector[at]}
        assert found == pytest.approx({k: scaled(v)[0] for k, v in expected.items()}, rel=1e-6)

    def test_a_grid_of_blocks_stands_for_a_parallel_loop(self):
        lines = [["Split", ["l0", n, n + 1], [1], [f"l{n}", f"l{n + 1}"]] for n in (2, 4, 8)]
        axes = {"l2": "blockIdx.x", "l4": "blockIdx.y", "l8": "threadIdx.x"}
        bound = [["Bind", [loop], [axis], []] for loop, axis in axes.items()]
        grid = [[*lines, *bound], []]
        loop = [[["Split", ["l0", 8, 3], [1], ["l1", "l2"]], ["Parallel", ["l1"], [], []]], []]
        of_grid, of_loop = features.vectors([json.dumps(grid), json.dumps(loop)])
        assert of_grid[AT["units_extent"]] == of_loop[AT["units_extent"]] == scaled(8)[0]
        assert of_grid[AT["lanes_extent"]] == scaled(8)[0]
        assert of_grid[AT["parallel_extent"]] == of_loop[AT["lanes_extent"]] == 0

    @pytest.mark.parametrize(
        "wrong", ["", "{}", "[]", "[[[]],[]]", "[[1],[]]", '[[["A",1,2,3]],[]]']
    )
    def test_what_is_no_trace_is_told(self, wrong):
        for view in (features.vectors, features.sequences):
            with pytest.raises(DataError, match="trace"):
                view([wrong])

    @pytest.mark.parametrize(
        "choice",
        [
            '["SamplePerfectTile",["l1"],[1,64],["v1"]]],[[0,[[8]]]]',
            '["SampleCategorical",[],[["aaa"],[1]],["v1"]]],[[0,0]]',
        ],
    )
    def test_what_is_drawn_is_a_number(self, choice):
        drawn, _, decided = choice.partition("],[[")
        split = '["Split",["l1","v1"],[],["l2"]],["Fuse",["v1"],[],["l3"]]'
        for view in (features.vectors, features.sequences):
            with pytest.raises(DataError, match="trace"):
                view([f"[[{drawn},{split}],[[{decided}]"])

    def test_a_word_that_is_none_is_passed_over(self):
        found = features.vectors(
            ['[[["Parallel",["l1"],[["x"]],[]]],[]]', '[[["Parallel",["l1"],[],[]]],[]]']
        )
        assert np.array_equal(*found)


def test_columns_have_names_of_their_own():
    assert len(set(labels(TRACE))) == len(TRACE) == features.vectors([]).shape[1]
    assert features.sequences([]).shape == (0, features.STEPS, features.WIDTH)


class TestRealTraces:
    def test_of_both_schedulers_are_read(self, packaged, imported):
        for column in (packaged, imported):
            vectors = features.vectors(column)
            sequences = features.sequences(column)
            assert vectors.dtype == sequences.dtype == np.float32
            assert np.isfinite(vectors).all()
            assert np.isfinite(sequences).all()
            assert (sequences[:, 0, 0] > 0).all()
            assert (vectors[:, AT["primitive_other"]] == 0).all()
            np.testing.assert_array_equal(vectors, features.vectors(column))

    def test_without_padding_part_by_part(self, packaged):
        some = packaged.slice(0, 50).to_pylist()
        steps, offsets = features.steps(some, at_once=7)
        padded = features.sequences(some)
        for i, own in enumerate(padded):
            length = offsets[i + 1] - offsets[i]
            np.testing.assert_array_equal(steps[offsets[i] : offsets[i + 1]], own[:length])
            assert not own[length:].any()

    def test_most_programs_differ(self, packaged):
        vectors = features.vectors(packaged)
        assert len(np.unique(vectors, axis=0)) > 0.9 * len(set(packaged.to_pylist()))

    def test_figures_are_those_of_the_lines(self, imported):
        vectors = features.vectors(imported)
        steps = [int(2 ** v[AT["unroll_max_step"]] - 0.5) for v in vectors]
        assert set(steps) == {0, 16, 512}
        # Three splits of 64, 128 and 32 on the CPU: innermost first, their factors give these.
        cpu = np.rint(2 ** vectors[:50, [AT[f"split0_factor{j}"] for j in range(4)]] - 1)
        assert (cpu.prod(axis=1) == 64).all()

    @settings(deadline=None, max_examples=30)
    @given(seed=st.integers(0, 2**32))
    def test_another_tile_is_another_vector(self, packaged, seed):
        rng = random.Random(seed)
        original = str(packaged[rng.randrange(len(packaged))])
        changed = traces.vary(json.loads(original), rng)
        if changed is None:
            return
        kept = traces.dump(traces.without_postproc(json.loads(original)))
        if len(changed[1]) < len(json.loads(kept)[1]):
            return  # a compute location left to be sampled
        before, after = features.vectors([kept, traces.dump(changed)])
        sequences = features.sequences([kept, traces.dump(changed)])
        assert (before != after).any()
        assert (sequences[0] != sequences[1]).any()


def test_traces_of_a_sketch_are_read_at_once_as_one_by_one(packaged):
    """Groups of the packaged records, shuffled among traces of another layout, and cut ones."""
    found = packaged.to_pylist()[:300]
    found += [trace.replace(",", ", ") for trace in found[:20]]
    found += [trace.replace("Split", "Unheard") for trace in found[:20]]
    random.Random(0).shuffle(found)
    groups, alone = grouped(found)
    assert len(alone) < len(found) / 4
    assert sum(len(group.rows) for group in groups) + len(alone) == len(found)
    rows, offsets, summed = steps_and_vectors(found)
    singly = [steps_and_vectors([trace]) for trace in found]
    np.testing.assert_array_equal(rows, np.concatenate([one[0] for one in singly]))
    np.testing.assert_array_equal(np.diff(offsets), [one[1][-1] for one in singly])
    np.testing.assert_array_equal(summed, np.concatenate([one[2] for one in singly]))


def test_a_group_with_a_trace_that_is_none_names_it(packaged):
    found = packaged.to_pylist()[:40]
    for spoilt in (found[7][:-40], found[7].replace('["Split"', '["Split",1', 1), "[]", "[[], 3]"):
        with pytest.raises(DataError, match="decisions"):
            steps_and_vectors([*found, spoilt])
