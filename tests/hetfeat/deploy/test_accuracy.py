"""What is said of how far a quantised network is from that of float32."""

import dataclasses
import json

import numpy as np
import pytest
from deploy_reports import REPORT

from hetfeat.deploy.accuracy import Accuracy, compare_networks, signal_to_noise_db
from hetfeat.deploy.report import parse_report
from hetfeat.errors import DataError
from hetfeat.workloads.network import Network

SIGNAL = np.array([[3.0, 4.0]], np.float32)
TOLD = Accuracy(20.5, 0.75, 4, (("conv1", 12.5), ("conv2", 18.0)))


@pytest.mark.parametrize(
    ("changed", "ratio_db"),
    [
        (SIGNAL + np.float32([[0.3, 0.4]]), 20.0),
        (SIGNAL * 2, 0.0),
        (SIGNAL, 200.0),
    ],
)
def test_the_ratio_by_hand(changed, ratio_db):
    assert signal_to_noise_db(SIGNAL, changed) == pytest.approx(ratio_db, abs=0.01)


def test_noise_without_a_signal():
    assert signal_to_noise_db(SIGNAL * 0, SIGNAL) == -200.0
    assert signal_to_noise_db(SIGNAL * 0, SIGNAL * 0) == 200.0


def test_the_furthest_output_and_the_first_classes_count():
    networks = [Network("n", module, ()) for module in (as_it_is, off_by_one)]
    samples = [[np.array([[1.0, 2.0], [2.0, 1.5]], np.float32)], [SIGNAL.repeat(2, 0)]]
    found = compare_networks(*networks, samples, [("layer", 3.0)])
    assert (found.rows, found.top1_agreement) == (4, 0.75)
    assert found.snr_db == signal_to_noise_db(np.ones(8), np.ones(8) * 1.5)
    assert found.worst_layers == (("layer", 3.0),)


def as_it_is(x):
    return x, x * 0 + 1


def off_by_one(x):
    """Only (2, 1.5) changes its class; the second output is off by a half."""
    return x * x.new_tensor([0.74, 1.0]), x * 0 + 1.5


def test_a_report_keeps_it():
    report = dataclasses.replace(REPORT, precision="int8", calibration="ab" * 32, accuracy=TOLD)
    kept = json.loads(json.dumps(report.as_json()))
    assert kept["accuracy"]["worst_layers"] == [["conv1", 12.5], ["conv2", 18.0]]
    assert parse_report(kept, what="the report", action="deploy anew") == report


@pytest.mark.parametrize(
    "wrong",
    [
        {"accuracy": {"snr_db": "high"}},
        {"accuracy": dataclasses.asdict(TOLD) | {"top1_agreement": 1.5}},
        {"accuracy": dataclasses.asdict(TOLD) | {"snr_db": float("nan")}},
        {"calibration": "not a digest"},
    ],
)
def test_what_is_no_accuracy_is_refused(wrong):
    kept = json.loads(json.dumps(REPORT.as_json()))
    with pytest.raises(DataError, match="the report"):
        parse_report(kept | wrong, what="the report", action="deploy anew")
