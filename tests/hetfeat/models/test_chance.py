"""What a model that knows nothing comes to, by shuffling and by hand."""

import math

import numpy as np
import pytest

from hetfeat.models.chance import chance_error
from hetfeat.models.metrics import pairwise_accuracy


def by_shuffling(latency_s, groups, rng) -> float:
    scores = (rng.random(len(latency_s)) for _ in range(1000))
    return float(np.std([pairwise_accuracy(s, latency_s, groups).value for s in scores]))


@pytest.mark.parametrize("programs", [2, 3, 16])
def test_it_is_the_spread_of_random_scores(programs):
    rng = np.random.default_rng(programs)
    groups = np.repeat(np.arange(3), programs)
    latency_s = np.exp(rng.normal(0, 0.3, 3 * programs))  # some pairs are within the noise
    latency_s[rng.random(len(latency_s)) < 0.1] = np.nan
    found = chance_error(latency_s, groups, groups)
    assert found == pytest.approx(by_shuffling(latency_s, groups, rng), rel=0.1)


def test_by_hand():
    """A pair is a coin: 1/2. Three programs in a row: Kendall's variance is 11/27, PCA's 11/108."""
    zeros = np.zeros(3, np.int64)
    assert chance_error(np.array([1.0, 2.0]), zeros[:2], zeros[:2]) == pytest.approx(0.5)
    found = chance_error(np.array([1.0, 4.0, 2.0]), zeros, zeros)
    assert found == pytest.approx(math.sqrt(11 / 108))


def test_more_tasks_tell_more_and_more_devices_of_one_task_do_not():
    latency_s = np.tile([1.0, 2.0, 3.0, 4.0], 9)
    groups = np.repeat(np.arange(9), 4)
    one = chance_error(latency_s[:4], groups[:4], groups[:4])
    assert chance_error(latency_s, groups, groups) == pytest.approx(one / 3)
    assert chance_error(latency_s, groups, np.zeros(36, np.int64)) == pytest.approx(one)


@pytest.mark.filterwarnings("error")
def test_without_a_pair_nothing_is_known():
    zeros = np.zeros(3, np.int64)
    for latency_s in ([], [1.0], [math.nan, 1.0], [1.0, 1.01, 1.02]):
        found = chance_error(np.array(latency_s), *(zeros[: len(latency_s)] for _ in range(2)))
        assert math.isnan(found)
