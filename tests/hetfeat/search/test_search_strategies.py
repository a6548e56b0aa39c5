"""What every strategy must do on every kind of space."""

import pytest
import spaces

from hetfeat.errors import RequestError
from hetfeat.search.base import Timed
from hetfeat.search.runner import evaluations_of, run_search
from hetfeat.search.space import gemm_space
from hetfeat.search.strategies import STRATEGIES, check_strategies, make_search
from hetfeat.testing.searches import SearchConformance, measured, small_recorded

SMALL, LARGE = 40, 110


@pytest.mark.parametrize("search", STRATEGIES)
class TestConformance(SearchConformance):
    """Of every strategy of the table."""


@pytest.mark.parametrize(
    "name",
    ["annealing", "gbfs", "evolution", pytest.param("surrogate", marks=pytest.mark.slow)],
)
def test_downhill_is_found(name):
    """Those that follow measured times; what the others learn is tested one by one."""
    space = spaces.TimedTiles(2**9, 2**9, 2**6, (4, 2, 4)).space
    target = (8, 4, 2, 8, 16, 4, 4, 1, 8, 16)

    def time_s(state):
        pairs = zip(state, target, strict=True)
        return 1e-3 * 1.3 ** sum(abs(a.bit_length() - b.bit_length()) for a, b in pairs)

    def total(strategy):
        return sum(measured(strategy, space, time_s, 250, seed)[1].best_s for seed in range(3))

    assert total(name) < total("random") / 1.5


class TestNames:
    def test_every_strategy_can_be_made(self, tmp_path):
        check_strategies(list(STRATEGIES))

    def test_an_unknown_one_is_refused_by_name(self):
        with pytest.raises(RequestError, match="'greedy'"):
            check_strategies(["gbfs", "greedy"])


class TestBudgets:
    @pytest.mark.parametrize(
        ("budget", "size", "evaluations"),
        [
            ("1", 50, 1),
            ("300", 1000, 300),
            ("300", 50, 50),
            ("1.0", 50, 50),
            ("0.001", 241_600, 242),
            ("1e-3", 899_756, 900),
        ],
    )
    def test_counts_and_fractions(self, budget, size, evaluations):
        assert evaluations_of(budget, size) == evaluations

    @pytest.mark.parametrize(
        "budget",
        ["0", "-1", "0.0", "1.5", "-0.1", "0.001", "many", "", "nan", "1e9", "inf", "1e-9"],
    )
    def test_what_is_no_budget(self, budget):
        with pytest.raises(RequestError, match="--budget"):
            evaluations_of(budget, 400)


class TestRun:
    def test_the_curve_is_the_best_so_far(self, tmp_path):
        space, time_s = small_recorded(tmp_path)
        asked, trial = measured("random", space, time_s, 50)
        best = None
        for state, reached in zip(asked, trial.curve_s, strict=True):
            times = [t for t in (best, time_s(state)) if t is not None]
            best = min(times, default=None)
            assert reached == best
        assert trial.best.seconds == best

    def test_measuring_takes_as_long_for_what_another_search_had_measured(self):
        space = gemm_space(8, 8, 8)
        known = {}

        def measure(states):
            return [known.setdefault(state, Timed(state, 1.0, 0.5)) for state in states]

        trials = [run_search(make_search("random", space, 0), measure, 20) for _ in range(2)]
        assert [trial.measuring_s for trial in trials] == [10.0, 10.0]
        assert len(known) == 20

    def test_a_run_may_end_early(self, tmp_path):
        space, _ = small_recorded(tmp_path)
        search = make_search("random", space, 0)
        trial = run_search(search, space.measure, 100, enough=lambda t: t.evaluations >= 16)
        assert trial.evaluations == 16
