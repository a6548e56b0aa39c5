"""How long builds may take."""

import pytest

from hetfeat.measure.build_timeout import BuildTimeout, BuildTimeoutOptions

OPTIONS = BuildTimeoutOptions()


def after(*builds: tuple[str, float, int]) -> BuildTimeout:
    timeout = BuildTimeout(OPTIONS)
    for operator, seconds, times in builds:
        for _ in range(times):
            timeout.learn(operator, seconds)
    return timeout


@pytest.mark.parametrize(
    ("seconds", "times", "allowed_s"),
    [
        (0.1, OPTIONS.builds_to_learn - 1, 8.0),
        (0.1, OPTIONS.builds_to_learn, OPTIONS.shortest_s),
        (0.5, OPTIONS.builds_to_learn, OPTIONS.medians * 0.5),
        (2.0, OPTIONS.builds_to_learn, 8.0),
    ],
)
def test_it_is_learnt_from_builds_of_the_operator(seconds, times, allowed_s):
    assert after(("conv2d", seconds, times)).allowed_s("conv2d") == allowed_s


def test_quick_builds_of_others_say_nothing():
    timeout = after(("conv2d", 0.1, 99), ("winograd", 1.5, OPTIONS.builds_to_learn))
    assert timeout.allowed_s("conv2d") == OPTIONS.shortest_s
    assert timeout.allowed_s("winograd") == timeout.allowed_s("dense") == 8.0


def test_a_few_that_were_given_up_change_little():
    timeout = after(("conv2d", 0.1, OPTIONS.builds_to_learn), ("conv2d", 3.0, 4))
    assert timeout.allowed_s("conv2d") == OPTIONS.shortest_s


def test_old_builds_are_forgotten():
    assert after(("conv2d", 0.1, 99), ("conv2d", 2.0, 64)).allowed_s("conv2d") == 8.0
