"""A server that answers with nonsense costs itself, never the collection."""

import dataclasses
import json
import math
import socket
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from hetfeat.measure.base import DeviceLost
from hetfeat.measure.messages import ProbeSpeed
from hetfeat.measure.remote.batch import Job, RemoteBatch
from hetfeat.measure.remote.session import SessionOptions, SessionRunner
from hetfeat.measure.worker_loop import receive
from hetfeat.records import Program, Task

TASK = Task("0" * 16, "matmul", ((4, 4), (4, 4)), "float32", 1e9)
GOOD_S = [0.02, 0.02]
OPTIONS = SessionOptions(
    run_timeout_s=1.0, patience_s=30.0, wait_s=0.01, first_rest_s=0.01, longest_rest_s=0.01
)


class FakeWorker:
    """A child whose server answers as it is told, and else as a good one does."""

    def __init__(self, threads: int, **told: object) -> None:
        self.told = told
        self.report = {
            "machine": "x86_64",
            "cpu": "AMD EPYC",
            "missing": [],
            "cores": 4,
            "threads": threads,
            "gflops": 60.0,
            "tvm": "0.27",
            "instance": "a",
            "crashes": 0,
        }

    def ask(self, request, timeout_s):
        do = request.do
        good = {"connect": self.report, "run_file": GOOD_S, "gflops": 60.0, "close": None}
        return self.told.get(do, {"value": good[do]}).get("value", {})


def without(key):
    return lambda report: {k: v for k, v in report.items() if k != key}


REPORTS = [
    lambda report: {},
    lambda report: None,
    lambda report: "text",
    lambda report: [report],
    *(without(key) for key in ("machine", "missing", "threads", "cores", "gflops", "tvm")),
    *(without(key) for key in ("cpu", "instance", "crashes")),
    *(
        lambda report, key=key, value=value: report | {key: value}
        for key, value in [
            ("gflops", math.nan),
            ("gflops", "fast"),
            ("gflops", math.inf),
            ("cores", "4"),
            ("threads", [2]),
            ("machine", ["x86_64"]),
            ("instance", {}),
            ("missing", None),
            ("crashes", -1),
            ("tvm", "0.27\x1b]0;owned\x07"),
        ]
    ),
]
RUNS = [
    *({"value": value} for value in ([0.0], [-1.0], [math.nan], [math.inf], [], "text", [True])),
    *({"value": value} for value in ([1e-300], ["1"], [1e-8], {"a": 1}, 1.0, [[0.1]])),
    {},
]
PROBES = [{}, *({"value": value} for value in ("text", math.nan, [60.0], -1.0))]


@pytest.fixture
def profile(device):
    return dataclasses.replace(device, route={"kind": "rpc", "key": "k"}, peak_gflops=100.0)


@pytest.fixture
def outcome(profile):
    """Runs sessions on a few programs; what was measured, what was quarantined, how it ended."""

    def run(programs: int = 3, **told):
        batch, reasons = RemoteBatch(programs, {}), []
        for number in range(programs):
            batch.add(Job(Program(TASK, str(number)), Path("x.so"), []))
        worker = FakeWorker(profile.threads, **told)
        take = lambda found, reason: reasons.append((list(found), reason))  # noqa: E731
        SessionRunner(worker, profile, take, dataclasses.replace(OPTIONS, patience_s=0.2)).run(
            batch
        )
        found, ended = [], None
        try:
            found.extend(batch.results())
        except Exception as error:
            ended = error
        return found, reasons, ended

    return run


def test_a_good_server_measures_all(outcome):
    found, reasons, ended = outcome()
    assert [m.latencies_s for m in found] == [tuple(GOOD_S)] * 3
    assert not reasons and ended is None


@pytest.mark.parametrize("change", REPORTS)
def test_a_report_that_is_none_turns_the_server_away(outcome, profile, change):
    report = change(FakeWorker(profile.threads).report)
    found, reasons, ended = outcome(connect={"value": report})
    assert not found and isinstance(ended, DeviceLost)
    assert len(reasons) == 1 and "\x1b" not in reasons[0][1]


@pytest.mark.parametrize("reply", RUNS)
def test_latencies_that_cannot_be_turn_the_server_away(outcome, reply):
    found, reasons, ended = outcome(run_file=reply)
    assert not found and isinstance(ended, DeviceLost)
    assert any("made no sense" in reason for _, reason in reasons)


@pytest.mark.parametrize("reply", PROBES)
def test_a_last_probe_without_sense_discredits_the_session(outcome, reply):
    found, reasons, ended = outcome(gflops=reply)
    assert not found and isinstance(ended, DeviceLost)
    assert reasons[0][0], "what was measured is in quarantine"


def test_a_single_program_with_nonsense_fails_as_a_crash_does(outcome):
    found, _, ended = outcome(programs=1, run_file={"value": [0.0]})
    assert [m.error for m in found] == ["crash"] and ended is None


def test_another_server_does_the_work_of_one_that_talks_nonsense(profile):
    batch = RemoteBatch(4, {})
    for number in range(4):
        batch.add(Job(Program(TASK, str(number)), Path("x.so"), []))
    bad, good = FakeWorker(profile.threads, run_file={"value": [0.0]}), FakeWorker(profile.threads)
    good.report |= {"instance": "b"}
    workers = iter([bad, bad, good, good, good, good, good])

    class Tracker:
        """Hands the runner another server with each session."""

        def ask(self, request, timeout_s):
            if request.do == "connect":
                self.server = next(workers)
            return self.server.ask(request, timeout_s)

    SessionRunner(Tracker(), profile, lambda found, reason: None, OPTIONS).run(batch)
    assert [m.latencies_s for m in batch.results()] == [tuple(GOOD_S)] * 4


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"[" * 4000, b"[]", b"{}", b"3", b'{"error": "x", "message": ""}']
    + [json.dumps({"error": "run"}).encode(), b'{"value": 1, "more": 2}', b'{"value": "1"}'],
)
def test_a_child_that_sends_garbage_counts_as_gone(data):
    ours, theirs = socket.socketpair()
    with Connection(ours.detach()) as here, Connection(theirs.detach()) as there:
        there.send_bytes(data)
        with pytest.raises(EOFError):
            receive(here, ProbeSpeed(enough=1.0))
