import dataclasses
import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetfeat.models.metrics import (
    by_group,
    pairwise_accuracy,
    pairwise_accuracy_tenset,
    r2,
    rmse,
)
from hetfeat.models.metrics_topk import expected_best, top_k, top_k_of_networks


def f(*values: float):
    return np.array(values, float)


def i(*values: int):
    return np.array(values, np.int64)


def test_pca_by_hand():
    # Group 0: latencies 1, 2, 3; scores order 1 < 3 < 2: pairs (1,2) wrong, (1,3) wrong, (2,3)
    # right. Group 1: one pair, tied: one half. Mean of 1/3 and 1/2.
    found = pairwise_accuracy(f(1, 3, 2, 5, 5), f(1, 2, 3, 1, 2), i(0, 0, 0, 1, 1))
    assert found.value == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert (found.groups, found.pairs, found.within_noise) == (2, 4, 0)


def test_pca_never_compares_across_groups():
    """Each group is right in itself; across groups every pair would be wrong."""
    found = pairwise_accuracy(f(2, 1, 20, 10), f(1, 2, 10, 20), i(0, 0, 1, 1))
    assert found.value == 1
    assert found.pairs == 2


def test_pca_leaves_out_failures_noise_and_lone_programs():
    latency_s = f(7, 1, 1.04, 2, math.nan, 3, 3.03)
    found = pairwise_accuracy(f(0, 1, 2, 3, 9, 0, 0), latency_s, i(0, 1, 1, 1, 1, 2, 2))
    assert found.within_noise == 2
    assert found.pairs == 2
    assert found.groups == 1
    assert found.value == 0


def test_pca_threshold_is_relative_and_inclusive():
    assert pairwise_accuracy(f(2, 1), f(1, 2), i(0, 0), noise=1.0).pairs == 1
    assert pairwise_accuracy(f(2, 1), f(100, 199), i(0, 0), noise=1.0).pairs == 0
    by_default = [pairwise_accuracy(f(2, 1), f(100, slow), i(0, 0)) for slow in (104.9, 105.1)]
    assert [found.pairs for found in by_default] == [0, 1]


@pytest.mark.filterwarnings("error")
def test_pca_of_nothing_is_nan_in_silence():
    assert math.isnan(pairwise_accuracy(f(1), f(1), i(0)).value)
    assert math.isnan(pairwise_accuracy(f(), f(), i()).value)
    assert math.isnan(pairwise_accuracy_tenset(f(), f(), i()))


def all_pairs(scores, latency_s, groups, noise):
    """PCA with all pairs in memory, as it is defined."""
    shares, counted, left_out = [], 0, 0
    for rows in by_group(groups):
        rows = rows[np.isfinite(latency_s[rows])]
        first, second = np.triu_indices(len(rows), k=1)
        faster = np.log(latency_s[rows][second] / latency_s[rows][first])
        apart = np.abs(faster) >= np.log1p(noise)
        left_out += int((~apart).sum())
        if apart.any():
            higher = (scores[rows][first] - scores[rows][second])[apart]
            right = np.where(higher == 0, 0.5, np.sign(higher) == np.sign(faster[apart]))
            counted += len(right)
            shares.append(float(right.mean()))
    return float(np.mean(shares)) if shares else math.nan, len(shares), counted, left_out


def all_pairs_tenset(scores, y, groups):
    shares, programs = [], []
    for rows in by_group(groups):
        first, second = np.triu_indices(len(rows), k=1)
        said = scores[rows][first] > scores[rows][second]
        true = y[rows][first] > y[rows][second]
        shares.append(float((said == true).mean()) if len(rows) > 1 else 0.5)
        programs.append(len(rows))
    return float(np.average(shares, weights=programs)) if shares else math.nan


LATENCY_S = st.sampled_from([1.0, 1.04, 1.05, 1.1, 2.0, 2.1, math.nan]) | st.floats(1e-6, 1e-3)
SCORE = st.sampled_from([0.0, 1.0, math.nan, math.inf, -math.inf]) | st.floats(-9, 9)


@given(
    programs=st.lists(st.tuples(SCORE, LATENCY_S, st.integers(0, 2)), max_size=60),
    chunk=st.sampled_from([1, 7, 64, 2**18]),
    noise=st.sampled_from([0.0, 0.05, 0.5]),
)
@pytest.mark.filterwarnings("ignore:invalid value")  # infinities are no scores of ours
def test_both_accuracies_in_chunks_are_those_of_all_pairs(programs, chunk, noise):
    scores, latency_s, groups = (np.array([p[k] for p in programs], float) for k in range(3))
    groups = groups.astype(np.int64)
    found = dataclasses.astuple(pairwise_accuracy(scores, latency_s, groups, noise, chunk))
    tenset = pairwise_accuracy_tenset(scores, 1 / latency_s, groups, chunk)
    np.testing.assert_equal(found, all_pairs(scores, latency_s, groups, noise))
    np.testing.assert_equal(tenset, all_pairs_tenset(scores, 1 / latency_s, groups))


def test_a_large_task_takes_little_memory():
    """All pairs of 6,000 programs at once took about 1 GB."""
    rng, zeros = np.random.default_rng(0), np.zeros(6000, np.int64)
    scores, latency_s = rng.normal(size=6000), np.exp(rng.normal(size=6000))
    tracemalloc.start()
    try:
        pairwise_accuracy(scores, latency_s, zeros)
        pairwise_accuracy_tenset(scores, 1 / latency_s, zeros)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_groups_are_their_rows_in_order():
    groups = np.arange(99, dtype=np.int64) % 4
    assert [rows.tolist() for rows in by_group(groups)] == [
        list(range(first, 99, 4)) for first in range(4)
    ]
    assert list(by_group(i())) == []


def test_tensets_variant_by_hand():
    # Pairs i < j of (0, 1, 2): said > is (F, F, T), true > is (F, T, T); the lone program is 0.5.
    found = pairwise_accuracy_tenset(f(1, 2, 1, 4), f(0.5, 1.0, 0.2, 1), i(0, 0, 0, 1))
    # The first task has three times as many programs, and counts three times.
    assert found == pytest.approx((3 * 2 / 3 + 0.5) / 4)


def test_tensets_variant_counts_ties_as_not_higher():
    assert pairwise_accuracy_tenset(f(1, 2), f(0.5, 0.5), i(0, 0)) == 1
    assert pairwise_accuracy_tenset(f(2, 1), f(0.5, 0.5), i(0, 0)) == 0
    assert pairwise_accuracy_tenset(f(1, 1), f(0.5, 0.2), i(0, 0)) == 0


def test_rmse_and_r2_by_hand():
    y, estimate = f(1, 0.5, 0.0), f(0.5, 0.5, 0.5)
    assert rmse(estimate, y) == pytest.approx(math.sqrt(0.5 / 3))
    assert r2(estimate, y) == 0
    assert r2(y, y) == 1
    assert math.isnan(r2(estimate, f(1, 1, 1)))


@pytest.mark.parametrize(("n", "k"), [(4, 1), (5, 2), (6, 5), (3, 3), (2, 5)])
def test_expected_best_is_the_mean_over_all_draws(n, k):
    values = np.random.default_rng(n * 10 + k).random(n)
    draws = [max(draw) for draw in itertools.combinations(values, min(k, n))]
    assert expected_best(values, k) == pytest.approx(np.mean(draws))


def test_top_k_by_hand_on_a_task_of_the_defined_size():
    y = np.linspace(1, 0.01, 256)
    scores = np.arange(256.0)  # the worst program is scored best
    groups = np.zeros(256, np.int64)
    first = top_k(scores, y, groups, 1)
    assert first.value == pytest.approx(0.01)
    assert first.random == pytest.approx(y.mean())
    assert first.above_random == pytest.approx((0.01 - y.mean()) / (1 - y.mean()))
    assert first.by_definition
    assert top_k(scores, y, groups, 5).value == pytest.approx(y[-5])


def test_top_k_ignores_small_tasks_where_there_is_a_large_one():
    groups = np.repeat([0, 1], [256, 30])
    y = np.where(groups == 0, 0.5, 1.0)
    found = top_k(np.ones(286), y, groups, 1)
    assert (found.value, found.tasks, found.smallest) == (0.5, 1, 256)


def test_top_k_without_a_large_task_says_so():
    groups = np.repeat([0, 1, 2], [20, 12, 3])
    found = top_k(np.ones(35), np.ones(35), groups, 1)
    assert not found.by_definition
    assert (found.tasks, found.smallest) == (2, 12)


def test_ties_are_not_broken_by_position():
    y, group = np.arange(1, 301) / 300, np.zeros(300, np.int64)
    firsts = {top_k(np.ones(300), y, group, 1, seed).value for seed in range(9)}
    assert len(firsts) > 5


def test_top_k_of_networks_by_hand():
    # Task a: best 1, chosen 2, weight 3. Task b: best 4, chosen 4, weight 1. Failures are skipped.
    found = top_k_of_networks(
        scores=f(1, 2, 9, 5, 3),
        latency_s=f(1, 2, math.nan, 4, 8),
        groups=i(0, 0, 0, 1, 1),
        keys=[("d", "a"), ("d", "b")],
        networks={"n": {"a": 3, "b": 1}, "m": {"b": 2}, "elsewhere": {"c": 1}, "other": {"a": 0}},
        k=1,
    )
    assert found.mean_of_ratios == pytest.approx((7 / 10 + 1) / 2)
    assert found.ratio_of_sums == pytest.approx((7 + 8) / (10 + 8))
    assert (found.networks, found.tasks) == (2, 2)


def test_top_k_leaves_out_tasks_of_which_nothing_ran():
    y = np.concatenate([np.linspace(0.1, 1, 300), np.zeros(300)])
    found = top_k(y, y, np.repeat([0, 1], 300), 1)
    assert (found.value, found.above_random, found.tasks) == (1.0, 1.0, 1)


def test_top_k_without_a_task_of_two_programs_is_no_number():
    found = top_k(np.ones(2), np.ones(2), np.array([0, 1]), 1)
    assert math.isnan(found.value) and math.isnan(found.above_random)
