"""What a deployment says of its own time."""

import logging
import re

import pytest

from hetfeat.deploy.stages import Stopwatch


def test_a_stage_counts_its_time_each_time_and_where_it_fails(caplog):
    caplog.set_level(logging.DEBUG, "hetfeat")
    watch = Stopwatch()
    with watch.stage("lowering"):
        pass
    with pytest.raises(RuntimeError), watch.stage("building"):
        raise RuntimeError
    before_s = watch.seconds["lowering"]
    with watch.stage("lowering"):
        pass
    assert list(watch.seconds) == ["lowering", "building"]
    assert before_s < watch.seconds["lowering"]
    assert sum(watch.seconds.values()) <= watch.total_s
    assert [re.sub(r"\d+\.\d", "N", line) for line in caplog.messages] == [
        *("lowering: N s", "building: N s", "lowering: N s"),
    ]
