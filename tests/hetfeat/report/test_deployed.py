"""Figures of a deployment, and the table of its tasks."""

from dataclasses import replace

import pytest
import stores
from deploy_reports import REPORT

from hetfeat.deploy.tuned import KERNELS_MS, TASKS, TUNING_S
from hetfeat.errors import DataError
from hetfeat.report.deployed import bars_of, of_fastest_peer, over_time, task_table

FASTER = replace(
    REPORT, latency_ms=10.0, untuned_ms=40.0, peers_ms={"onnxruntime": 12.0, "openvino": None}
)
DEVICE = stores.profile("a")
"""200 GFLOP/s and 20 GB/s."""


def fact(operator="matmul", **more):
    facts = {"task": "t", "operator": operator, "shapes": [[1000, 1000]] * 3, "weight": 1}
    return facts | {"latency_s": 2e-3, "trace": "[]", "dtype": "float32", "flops": 2e8} | more


def test_how_many_times_as_fast_as_the_fastest_peer():
    assert of_fastest_peer(FASTER) == pytest.approx(1.2)
    assert of_fastest_peer(replace(FASTER, peers_ms={"torch": None})) is None


def test_a_bar_for_all_that_ran():
    (axis,) = bars_of(FASTER).axes
    bars = {label.get_text() for label in axis.get_yticklabels()}
    assert bars == {"hetfeat", "ONNX Runtime", "without tuning"}
    assert "latency of tiny, ms" in axis.get_xlabel()
    assert [text.get_text() for text in axis.texts] == ["10", "12", "40"]


def test_latency_over_time_begins_where_the_last_task_was_measured():
    points = {
        TASKS: {8: 1, 16: 2, 24: 2},
        TUNING_S: {8: 3.0, 16: 6.0, 24: 9.0},
        KERNELS_MS: {8: 4.0, 16: 11.0, 24: 9.5},
    }
    (axis,) = over_time(points, FASTER).axes
    kernels, ours, peer = axis.get_lines()
    assert (list(kernels.get_xdata()), list(kernels.get_ydata())) == ([6.0, 9.0], [11.0, 9.5])
    assert (set(ours.get_ydata()), set(peer.get_ydata())) == ({10.0}, {12.0})
    assert [peer.get_label(), axis.get_xlabel()] == ["ONNX Runtime", "seconds of tuning"]
    assert kernels.get_label() == "kernels of 2 tasks, added up"
    assert (axis.get_xlim()[0], axis.get_ylim()[0]) == (0, 0)


def test_nothing_is_drawn_where_nothing_was_tuned():
    assert over_time({}, FASTER) is None


def test_tasks_that_take_longest_come_first():
    short, long = fact(), fact(weight=3)
    table = task_table([short, long], DEVICE)
    assert table["occurrences"] == [3, 1]
    assert table["share"] == pytest.approx([0.75, 0.25])
    assert table["latency_ms"] == pytest.approx([2.0, 2.0])
    assert table["shapes"][0] == "1000x1000 1000x1000 1000x1000"


def test_a_roofline_is_of_what_takes_longer():
    computing, moving = fact(flops=2e8), fact(flops=2e7)
    table = task_table([computing, moving], DEVICE)
    assert table["roofline_ms"] == pytest.approx([1.0, 0.6])
    assert table["of_roofline"] == pytest.approx([0.5, 0.3])


@pytest.mark.parametrize("more", [{"dtype": "int32"}, {"dtype": ""}])
def test_there_is_no_roofline_in_other_types(more):
    assert task_table([fact(**more)], DEVICE)["roofline_ms"] == [None]


def test_who_chose_a_program_and_how_a_convolution_is_computed():
    image, weights = [1, 8, 8, 3], [3, 3, 3, 4]
    tasks = [
        fact("conv2d", shapes=[image, weights, [1, 8, 8, 4]]),
        fact("winograd", shapes=[image, [6, 6, 3, 4], [1, 8, 8, 4]], latency_s=None),
        fact("softmax", latency_s=None, trace=None),
        fact("conv2d", shapes=[[1]], latency_s=None),
    ]
    table = task_table(tasks, DEVICE)
    assert table["variant"] == ["direct", "winograd 4x4", "", ""]
    said = ["measured", "picked by the model", "default schedule", "picked by the model"]
    assert table["program"] == said


def test_what_others_wrote_is_read_with_care():
    old = {key: value for key, value in fact().items() if key not in ("dtype", "flops")}
    assert task_table([old], DEVICE)["of_roofline"] == [None]
    assert task_table([], DEVICE) == {}
    for wrong in ("x", [fact(latency_s=-1.0)], [fact(weight=0)], [fact(shapes=[["a"]])]):
        with pytest.raises(DataError, match="the tasks of a bundle"):
            task_table(wrong, DEVICE)
