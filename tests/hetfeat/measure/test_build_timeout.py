"""How long builds may take."""

import pytest

from hetfeat.measure.build_timeout import (
    BUILDS_TO_LEARN,
    TIMEOUT_FLOOR_S,
    TIMEOUT_MEDIANS,
    Patience,
)


def after(*builds: tuple[str, float, int]) -> Patience:
    patience = Patience(8.0)
    for operator, seconds, times in builds:
        for _ in range(times):
            patience.learn(operator, seconds)
    return patience


@pytest.mark.parametrize(
    ("seconds", "times", "allowed_s"),
    [
        (0.1, BUILDS_TO_LEARN - 1, 8.0),
        (0.1, BUILDS_TO_LEARN, TIMEOUT_FLOOR_S),
        (0.5, BUILDS_TO_LEARN, TIMEOUT_MEDIANS * 0.5),
        (2.0, BUILDS_TO_LEARN, 8.0),
    ],
)
def test_it_is_learnt_from_builds_of_the_operator(seconds, times, allowed_s):
    assert after(("conv2d", seconds, times)).allowed_s("conv2d") == allowed_s


def test_quick_builds_of_others_say_nothing():
    patience = after(("conv2d", 0.1, 99), ("winograd", 1.5, BUILDS_TO_LEARN))
    assert patience.allowed_s("conv2d") == TIMEOUT_FLOOR_S
    assert patience.allowed_s("winograd") == patience.allowed_s("dense") == 8.0


def test_a_few_that_were_given_up_change_little():
    patience = after(("conv2d", 0.1, BUILDS_TO_LEARN), ("conv2d", 3.0, 4))
    assert patience.allowed_s("conv2d") == TIMEOUT_FLOOR_S


def test_old_builds_are_forgotten():
    assert after(("conv2d", 0.1, 99), ("conv2d", 2.0, 64)).allowed_s("conv2d") == 8.0
