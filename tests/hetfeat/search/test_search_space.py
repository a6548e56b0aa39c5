"""Tile spaces, recorded spaces, visits, and the tiles of a trace."""

import json
import random
from math import prod

import numpy as np
import pytest
import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from hetfeat.errors import RequestError
from hetfeat.schedules.trace import primes
from hetfeat.search.space import (
    Dimension,
    TileSpace,
    exchanged_factors,
    factorings,
    gemm_space,
)
from hetfeat.search.trace_tiles import TraceTiles
from hetfeat.search.visited import Visits


def reachable(space, start):
    found, edge = {start}, [start]
    while edge:
        new = {s for state in edge for _, s in space.moves(state)} - found
        found |= new
        edge = list(new)
    return found


class TestTiles:
    @pytest.mark.parametrize(("cube", "size"), [(512, 484_000), (1024, 899_756), (2048, 1_589_952)])
    def test_sizes_of_the_paper(self, cube, size):
        space = gemm_space(cube, cube, cube)
        assert space.size == size
        assert space.actions == 26

    def test_a_small_one_is_enumerated(self):
        space = gemm_space(12, 5, 4, (2, 1, 2))
        states = [space.state_at(i) for i in range(space.size)]
        assert len(set(states)) == space.size == 6 * 2 * 1
        assert all(prod(s[:2]) == 12 and s[2] == 4 and prod(s[3:]) == 5 for s in states)

    def test_moves_take_one_prime_from_slot_to_slot(self):
        space = gemm_space(6, 1, 1, (2, 1, 1))
        assert {s for _, s in space.moves((6, 1, 1, 1))} == {(3, 2, 1, 1), (2, 3, 1, 1)}
        assert {s for _, s in space.moves((3, 2, 1, 1))} == {(6, 1, 1, 1), (1, 6, 1, 1)}

    def test_an_action_means_the_same_everywhere(self):
        space = gemm_space(16, 16, 16)
        ratios: dict[int, set] = {}
        for index in range(0, space.size, 97):
            state = space.state_at(index)
            for action, moved in space.moves(state):
                change = tuple(b / a for a, b in zip(state, moved, strict=True))
                ratios.setdefault(action, set()).add(change)
        assert {len(found) for found in ratios.values()} == {1}

    def test_moves_connect_the_whole_space(self):
        space = gemm_space(8, 12, 9, (3, 2, 2))
        assert len(reachable(space, space.start())) == space.size

    @pytest.mark.parametrize(
        ("extent", "pairs"),
        [
            (1, []),
            (1024, []),
            (768, [(3, 2), (3, 4)]),
            (784, [(7, 4), (7, 8)]),
            (14, [(7, 2)]),
            (30, [(3, 2), (5, 2), (5, 3)]),
        ],
    )
    def test_a_prime_is_exchanged_for_powers_beside_it(self, extent, pairs):
        assert exchanged_factors(extent) == pairs

    def test_slots_exchange_factors(self):
        space = TileSpace([Dimension(192, 2), Dimension(4, 2)])
        assert set(space.exchanges((16, 12, 4, 1))) == {(24, 8, 4, 1), (12, 16, 4, 1)}
        assert set(space.exchanges((12, 16, 1, 4))) == {(8, 24, 1, 4), (16, 12, 1, 4)}
        assert space.exchanges((192, 1, 2, 2)) == []

    @settings(max_examples=50)
    @given(st.tuples(*[st.integers(1, 200)] * 3), st.randoms(use_true_random=False))
    def test_exchanges_keep_the_products_and_are_distinct(self, shape, rng):
        space = gemm_space(*shape, slots=(3, 2, 2))
        state = space.state_at(rng.randrange(space.size))
        exchanged = space.exchanges(state)
        m, n, k = shape
        for other in exchanged:
            assert (prod(other[:3]), prod(other[3:5]), prod(other[5:])) == (m, k, n)
            assert sum(a != b for a, b in zip(state, other, strict=True)) == 2
            assert state in space.exchanges(other)
        assert len({state, *exchanged}) == len(exchanged) + 1
        assert {s for _, s in space.moves(state)}.isdisjoint(exchanged)

    def test_exchanges_keep_to_the_bound_on_the_innermost_factor(self):
        space = TileSpace([Dimension(48, 2, max_innermost=8)])
        assert space.exchanges((8, 6)) == [(12, 4), (6, 8)]
        assert space.exchanges((6, 8)) == [(8, 6)]

    def test_a_bound_on_the_innermost_factor(self):
        space = TileSpace([Dimension(16, 2, max_innermost=4)])
        assert {space.state_at(i) for i in range(space.size)} == {(16, 1), (8, 2), (4, 4)}
        assert [s for _, s in space.moves((4, 4))] == [(8, 2)]
        assert space.levels == ((4, 8, 16), (1, 2, 4))

    def test_a_start_that_is_not_legal_is_none(self):
        assert TileSpace([Dimension(5, 1)]).start() == (5,)
        with pytest.raises(RequestError):
            TileSpace([Dimension(5, 1, max_innermost=4)])

    @pytest.mark.parametrize("shape", [(1, 1, 1), (1, 64, 1), (7, 13, 31), (1, 97, 2)])
    def test_ones_and_primes(self, shape):
        space = gemm_space(*shape)
        m, n, k = shape
        assert space.size == len(factorings(m, 4)) * len(factorings(n, 4)) * len(factorings(k, 2))
        assert reachable(space, space.start()) == {space.state_at(i) for i in range(space.size)}
        assert np.isfinite(space.vectors([space.start()])).all()

    @pytest.mark.parametrize("shape", [(0, 4, 4), (4, -1, 4)])
    def test_no_shape(self, shape):
        with pytest.raises(RequestError):
            gemm_space(*shape)

    @given(st.integers(1, 200))
    def test_primes(self, number):
        assert all(number % p == 0 and primes(p) == [p] for p in primes(number))
        rest = number
        for p in primes(number):
            while rest % p == 0:
                rest //= p
        assert rest == 1

    @settings(max_examples=30)
    @given(st.tuples(*[st.integers(1, 48)] * 3), st.randoms(use_true_random=False))
    def test_options_lead_to_every_state_and_to_no_other(self, shape, rng):
        space = gemm_space(*shape, slots=(3, 2, 2))
        prefix = ()
        while len(prefix) < len(space.levels):
            options = space.options(prefix)
            assert options == sorted(options)
            assert options
            prefix += (rng.choice(options),)
        assert any(prefix == space.state_at(i) for i in range(space.size))
        state = space.state_at(rng.randrange(space.size))
        assert all(state[at] in space.options(state[:at]) for at in range(len(state)))


class TestRecorded:
    def test_constant_parameters_are_no_part_of_a_state(self, tmp_path):
        space = spaces.recorded(tmp_path)
        assert space.parameters == ("BM", "BN", "V", "S")
        assert space.size == 120
        assert space.optimum_s == pytest.approx(1e-3)

    def test_moves_are_one_step_of_one_parameter(self, tmp_path):
        space = spaces.recorded(tmp_path)
        assert {s for _, s in space.moves((8, 64, 2, 0))} == {
            (16, 64, 2, 0), (8, 32, 2, 0), (8, 64, 1, 0), (8, 64, 4, 0), (8, 64, 2, 1)
        }  # fmt: skip

    def test_no_parameters_exchange_factors(self, tmp_path):
        assert spaces.recorded(tmp_path).exchanges((8, 64, 2, 0)) == []

    def test_failures_have_no_time(self, tmp_path):
        space = spaces.recorded(tmp_path)
        fine, failed = space.measure([(32, 16, 2, 1), (128, 64, 1, 0)])
        assert fine.seconds == pytest.approx(1e-3)
        assert failed.seconds is None

    def test_timings_are_chosen_by_slice(self, tmp_path):
        from hetfeat.dataset.importers.kernel_tuner import read_recording
        from hetfeat.search.recorded import RecordedSpace

        content = spaces.cache({"8,8,1,0,32": 1.0, "16,8,1,0,32": 5.0})
        content["cache"]["8,8,1,0,32"] = {"time": 1.0, "times": [1.0, 2.0, 3.0, 9.0]}
        recording = read_recording(spaces.write(tmp_path / "c.json", content))
        assert RecordedSpace(recording).time_s((8,)) == pytest.approx(2.5e-3)
        assert RecordedSpace(recording, slice(0, None, 2)).time_s((8,)) == pytest.approx(2e-3)

    def test_options_follow_the_states(self, tmp_path):
        space = spaces.islands(tmp_path)
        assert list(space.options(())) == [8, 16, 64]
        assert list(space.options((64,))) == [32, 64]
        assert list(space.options((64, 32, 4))) == [1]

    def test_vectors_are_within_bounds(self, tmp_path):
        space = spaces.recorded(tmp_path)
        vectors = space.vectors(space.states)
        assert vectors.min(axis=0).tolist() == [0.0] * 4
        assert vectors.max(axis=0).tolist() == [1.0] * 4
        assert space.vectors([(8, 16, 2, 1)])[0].tolist() == pytest.approx([0, 1 / 3, 1 / 2, 1])


class TestVisits:
    def test_every_state_is_drawn_once(self):
        space = gemm_space(12, 8, 4, (2, 2, 2))
        visits = Visits(space, random.Random(0))
        visits.add(space.state_at(5))
        drawn = visits.fresh(space.size)
        assert len(set(drawn)) == len(drawn) == space.size - 1
        assert visits.fresh(1) == []

    def test_the_first_draw_is_even(self):
        space = gemm_space(16, 1, 1, (2, 1, 1))
        first = [Visits(space, random.Random(seed)).fresh(1)[0] for seed in range(2000)]
        counts = [first.count(space.state_at(i)) for i in range(space.size)]
        assert min(counts) > 2000 / space.size * 0.8

    def test_a_large_space_costs_what_is_drawn_of_it(self):
        visits = Visits(gemm_space(2**20, 2**20, 2**20), random.Random(0))
        assert len(set(visits.fresh(2000))) == 2000


TRACE = [
    [
        ["GetSBlock", [], ["matmul", "main"], ["b0"]],
        ["SamplePerfectTile", ["l1"], [4, 8], ["v1", "v2", "v3", "v4"]],
        ["SampleCategorical", [], [[0, 16], [0.5, 0.5]], ["v5"]],
        ["SamplePerfectTile", ["l2"], [2, -1], ["v6", "v7"]],
        ["EnterPostproc", [], [], []],
        ["Unroll", ["l3"], [], []],
    ],
    [[1, [1, 2, 3, 4]], [2, 1], [3, [5, 7]]],
]


class TestTraces:
    def test_tile_decisions_are_a_tile_space(self):
        tiles = TraceTiles.of(json.dumps(TRACE))
        assert tiles.state == (1, 2, 3, 4, 5, 7)
        allowed = [f for f in factorings(24, 4) if f[-1] <= 8]
        assert tiles.space.size == len(allowed) * 4

    def test_other_tiles_in_the_same_trace(self):
        changed = json.loads(TraceTiles.of(json.dumps(TRACE)).with_tiles((2, 2, 6, 1, 35, 1)))
        assert changed == [TRACE[0][:4], [[1, [2, 2, 6, 1]], [2, 1], [3, [35, 1]]]]
