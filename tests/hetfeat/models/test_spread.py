"""Intervals over tasks: what they hold, and what is drawn."""

import math

import numpy as np
import pytest

from hetfeat.models.spread import bootstrap, paired_bootstrap


def test_the_interval_holds_the_true_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    held = 0
    for seed in range(100):
        told = bootstrap(rng.normal(0.8, 0.1, 60), np.arange(60), draws=200, seed=seed)
        held += told.low <= 0.8 <= told.high
    assert 88 <= held <= 99


def test_one_task_on_many_devices_is_one_draw():
    values = np.random.default_rng(0).random(20)
    alone = bootstrap(values, np.arange(20))
    repeated = bootstrap(np.tile(values, 5), np.tile(np.arange(20), 5))
    assert (repeated.low, repeated.high) == pytest.approx((alone.low, alone.high))
    assert repeated.units == 20
    independent = bootstrap(np.tile(values, 5), np.arange(100))
    assert independent.error < alone.error / 1.5


def test_weights_are_those_of_the_mean():
    told = bootstrap(np.array([1.0, 0.0]), np.array([7, 3]), np.array([3.0, 1.0]))
    assert told.mean == 0.75
    assert (told.low, told.high) == (0, 1)  # two units: both draws of one of them twice


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("values", "mean"), [([], math.nan), ([0.7, 0.9], 0.8)])
def test_of_fewer_than_two_units_there_is_no_interval(values, mean):
    told = bootstrap(np.array(values), np.zeros(len(values), np.int64))
    assert told.mean == pytest.approx(mean, nan_ok=True)
    assert math.isnan(told.low) and math.isnan(told.high) and math.isnan(told.error)


def test_a_pair_is_told_apart_where_two_intervals_overlap():
    rng = np.random.default_rng(0)
    theirs, units = rng.uniform(0.6, 1.0, 50), np.arange(50)
    ours = theirs + rng.normal(0.01, 0.01, 50)
    gain = paired_bootstrap(ours, theirs, units)
    assert 0 < gain.low < 0.01 < gain.high < 0.02
    assert bootstrap(ours, units).low < bootstrap(theirs, units).high
