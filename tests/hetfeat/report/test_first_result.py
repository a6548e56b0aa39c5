"""The page of a first result, and its sentence."""

import re
from dataclasses import replace

import pytest
from deploy_reports import REPORT

from hetfeat.report.first_result import latencies_of, verdict, write_page

SLOWER, FASTER = {"onnxruntime": 8.0, "openvino": None}, {"onnxruntime": 12.0, "openvino": 15.0}


@pytest.mark.parametrize(
    ("peers_ms", "said"),
    [
        (FASTER, "1.20 times as fast as ONNX Runtime, the fastest peer here."),
        (SLOWER, "Slower than ONNX Runtime by 1.25: tuning measures programs to change that."),
        ({"openvino": None}, "No other engine ran here."),
    ],
)
def test_the_sentence_compares_with_the_fastest_peer(peers_ms, said):
    assert verdict(replace(REPORT, latency_ms=10.0, peers_ms=peers_ms)) == said


def test_what_did_not_run_has_no_bar():
    report = replace(REPORT, latency_ms=10.0, peers_ms=SLOWER)
    assert latencies_of(report) == {"hetfeat": 10.0, "ONNX Runtime": 8.0}


def test_the_page_needs_nothing_but_itself(tmp_path):
    report = replace(REPORT, latency_ms=10.0, peers_ms=FASTER, untuned_ms=None)
    write_page(tmp_path / "page.html", report, tmp_path / "a network.onnx")
    page = (tmp_path / "page.html").read_text()
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    assert "<script" not in page
    assert (
        'alt="Latencies in milliseconds: hetfeat 10.00, ONNX Runtime 12.00, OpenVINO 15.00"' in page
    )
    assert "1.20 times as fast" in page
    assert "without tuning" not in page
    assert "hetfeat deploy &#39;" in page
