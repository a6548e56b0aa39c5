"""What parents and children tell one another."""

import json

import pytest

from hetfeat.errors import DataError
from hetfeat.measure.local import MeasureOptions
from hetfeat.measure.messages import (
    Done,
    Failed,
    Hello,
    RequestFailed,
    RunProgram,
    SamplePrograms,
    Start,
    any_of,
    decode_message,
    decode_reply,
)
from hetfeat.measure.timing_options import RankingOptions, TimingOptions
from hetfeat.parsing import decode

RUN = RunProgram(program="p", incumbent_s=None)


def test_a_child_is_told_the_options_of_its_parent(device):
    timing, ranking = TimingOptions(repeats=7), RankingOptions(kill_ratio=2.0)
    told = MeasureOptions(timing=timing, ranking=ranking, memory_limit_bytes=5).start(device)
    start = decode(told.model_dump_json(), Start, what="", action="")
    assert (start.timing, start.ranking, start.memory_limit_bytes) == (timing, ranking, 5)
    assert start.target == dict(device.target)


def test_a_message_is_told_by_its_tag():
    kinds = any_of([Hello, RunProgram, SamplePrograms])
    for message in (Hello(), RUN, SamplePrograms(task="t", count=3, seed=1)):
        assert decode_message(message.model_dump_json().encode(), kinds) == message
    for data in (b"{}", b'{"do": "vary"}', b'{"do": "run", "program": 3}', b'{"do": ["run"]}'):
        with pytest.raises(DataError):
            decode_message(data, kinds)


def test_replies_are_json_and_what_is_no_number_is_none():
    text = Done(value=[0.5, float("nan"), float("inf")]).model_dump_json()
    assert json.loads(text, parse_constant=pytest.fail) == {"value": [0.5, None, None]}
    assert decode_reply(text.encode(), RUN) == [0.5, None, None]


def test_a_reply_has_the_type_of_its_request():
    with pytest.raises(DataError):
        decode_reply(b'{"value": "fast"}', RUN)
    with pytest.raises(RequestFailed, match="no room") as failed:
        decode_reply(Failed(error="memory", message="no room").model_dump_json().encode(), RUN)
    assert failed.value.kind == "memory"
