"""What a deployment came to, written by one process and read by another."""

import json
from dataclasses import replace

import pytest
from deploy_reports import REPORT

from hetfeat.deploy.report import parse_report
from hetfeat.errors import DataError

TOLD = replace(
    REPORT,
    peers_ms={"torch": 2.0, "openvino": None},
    left_out={"openvino": "it does not run"},
    batches_ms={"4": 3.0},
    seconds={"choosing": 12.5, "building": 8.0},
)
KEYS = [
    *("network", "device", "latency_ms", "latency_range_ms", "peers_ms", "untuned_ms"),
    *("batches_ms", "tuning_s", "build_s", "total_s", "trials", "failed", "resumed"),
    *("interrupted", "stopped", "max_abs_error", "tolerance", "model_version"),
    *("leaked_records", "seconds", "precision", "calibration", "accuracy", "left_out"),
    *("peers_error", "picked_ms"),
]


def parsed(value):
    return parse_report(value, what="the report of 'b'", action="deploy anew")


def test_a_report_is_read_as_it_was_written():
    text = json.dumps(TOLD.as_json())
    assert list(json.loads(text)) == KEYS
    assert parsed(json.loads(text) | {"run_id": "r"}) == TOLD


def test_an_older_report_says_less():
    older = TOLD.as_json()
    del older["stopped"], older["seconds"], older["left_out"], older["peers_error"]
    assert parsed(older) == replace(TOLD, seconds={}, left_out={}, peers_error={})


@pytest.mark.parametrize(
    "wrong",
    [
        {"latency_ms": -1.0},
        {"latency_range_ms": [1.0]},
        {"trials": "8"},
        {"peers_ms": {"torch": float("nan")}},
        {"interrupted": None},
    ],
)
def test_what_is_no_report_is_one_line(wrong):
    with pytest.raises(DataError, match="the report of 'b'"):
        parsed(TOLD.as_json() | wrong)
    with pytest.raises(DataError, match="the report of 'b'"):
        parsed(None)
