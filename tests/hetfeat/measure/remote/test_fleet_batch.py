"""What is settled, blamed and turned away when measuring over RPC, without a server."""

import dataclasses
import threading
from pathlib import Path

import pytest

from hetfeat.dataset import sidecar_files
from hetfeat.devices.fleet.identity import mismatch
from hetfeat.devices.fleet.report import ServerReport, report_of
from hetfeat.errors import DataError, RequestError
from hetfeat.measure.base import DeviceLost, make_measurement
from hetfeat.measure.remote.batch import Job, RemoteBatch
from hetfeat.measure.remote.measurer import RemoteMeasurer
from hetfeat.records import Program, Task

TASK = Task("0" * 16, "matmul", ((4, 4), (4, 4)), "float32", 128.0)
REPORT = {
    "machine": "x86_64",
    "cpu": "AMD EPYC",
    "missing": [],
    "cores": 4,
    "threads": 2,
    "gflops": 60.0,
    "tvm": "0.27",
    "instance": "a",
    "crashes": 0,
}


def told(**changed) -> ServerReport:
    return report_of(REPORT | changed)


def job(name: str) -> Job:
    return Job(Program(TASK, name), Path(name), [])


def settled(name: str, latency_s: float = 1.0):
    return make_measurement(Program(TASK, name), "d", [latency_s], None)


def test_results_come_until_all_are_settled():
    batch = RemoteBatch(3, {})
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.extend(m.program.trace for m in batch.results()))
    reader.start()
    batch.settle([settled("x"), settled("y")])
    assert not batch.is_over
    batch.settle([settled("z")])
    reader.join(10)
    assert found == ["x", "y", "z"]
    assert batch.is_over and batch.take(0.0) is None and not batch.has_work()


def test_what_is_settled_comes_before_what_went_wrong():
    batch = RemoteBatch(2, {})
    batch.settle([settled("x")])
    batch.fail(DeviceLost("a", "b", "c"))
    results = batch.results()
    assert next(results).program.trace == "x"
    with pytest.raises(DeviceLost):
        next(results)


def test_nothing_is_taken_twice():
    batch = RemoteBatch(1, {})
    batch.add(job("x"))
    assert batch.take(0.0).program.trace == "x"
    assert batch.take(0.0) is None


def test_the_best_latency_is_of_what_is_settled():
    batch = RemoteBatch(2, {TASK.hash: 2.0})
    batch.settle([settled("x", 1.5), settled("y", 3.0)])
    assert batch.best_s == {TASK.hash: 1.5}


def test_three_crashes_or_two_time_outs_are_a_programs_fault():
    batch, crashing, hanging = RemoteBatch(2, {}), job("x"), job("y")
    assert [batch.blame(crashing, "crash", told()) for _ in range(3)] == [False, False, True]
    assert [batch.blame(hanging, "timeout", told()) for _ in range(2)] == [False, True]


def test_a_server_without_a_crash_acquits():
    batch, suspect = RemoteBatch(1, {}), job("x")
    for _ in range(10):  # a link that breaks again and again
        assert not batch.blame(suspect, "crash", told())
        batch.acquit(told())
    for crashes in range(2):
        assert not batch.blame(suspect, "crash", told(crashes=crashes))
        batch.acquit(told(crashes=crashes + 1))  # something did crash there
        batch.acquit(told(instance="b", crashes=crashes))  # another server knows nothing of it
    assert batch.blame(suspect, "crash", told(crashes=2))


@pytest.mark.tvm
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        ({"gflops": 51.0}, None),
        ({"gflops": 199.0}, None),
        (
            {"gflops": 49.0},
            "49 GFLOP/s, under half the profile's 100: another machine, or a busy one",
        ),
        (
            {"gflops": 201.0},
            "201 GFLOP/s, over twice the profile's 100: "
            "another machine, or it was probed while busy: do that again",
        ),
        ({"machine": "aarch64"}, "aarch64, not cpu-x86"),
        ({"cpu": "Intel Xeon"}, "processor 'Intel Xeon', not 'AMD EPYC'"),
        ({"missing": ["avx512f"]}, "'AMD EPYC' without avx512f"),
        ({"threads": 4}, "4 threads on 4 cores, not 2 on as many or more"),
        ({"cores": 1}, "2 threads on 1 cores, not 2 on as many or more"),
    ],
)
def test_who_a_server_is(device, changed, reason):
    route = {"kind": "rpc", "key": "k", "cpu": "AMD EPYC"}
    profile = dataclasses.replace(device, route=route, peak_gflops=100.0)
    assert mismatch(profile, told(**changed)) == reason


def test_a_device_that_nothing_here_links_for_is_told_before_anything_is_built(device):
    target = {**device.target, "mtriple": "nothing-linux-gnu"}
    route = {"kind": "rpc", "key": "k"}
    measurer = RemoteMeasurer(
        dataclasses.replace(device, target=target, route=route), lambda found, reason: None
    )
    with pytest.raises(RequestError, match=r"nothing-linux-gnu-g\+\+ links"):
        measurer.__enter__()


def test_a_server_that_says_nothing_is_not_the_device():
    with pytest.raises(DataError, match="what a server says of itself"):
        report_of({})


def test_quarantine_keeps_measurements_and_reasons_apart(tmp_path):
    sidecar_files.quarantine(tmp_path, [settled("x"), settled("y")], "throttled")
    sidecar_files.quarantine(tmp_path, [], "another processor")
    rows = list(sidecar_files.read_rows(tmp_path, sidecar_files.QUARANTINE))
    assert [row["reason"] for row in rows] == ["throttled", "throttled", "another processor"]
    assert [row.get("trace") for row in rows] == ["x", "y", None]


def test_a_torn_line_of_the_quarantine_costs_itself_alone(tmp_path):
    sidecar_files.quarantine(tmp_path, [settled("x")], "throttled")
    path = tmp_path / sidecar_files.QUARANTINE
    path.write_text(path.read_text() + '{"reason": "thr')
    sidecar_files.quarantine(tmp_path, [settled("y")], "throttled")
    assert [
        row["trace"] for row in sidecar_files.read_rows(tmp_path, sidecar_files.QUARANTINE)
    ] == [
        "x",
        "y",
    ]
