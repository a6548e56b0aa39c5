"""Programs that Dask workers build and this machine runs, while a worker dies."""

import os
import signal
import threading

import kernels
import pytest

from hetfeat.cluster import connected
from hetfeat.measure.factory import measurer_of

pytest.importorskip("distributed")
pytestmark = [pytest.mark.slow, pytest.mark.tvm]


@pytest.fixture(scope="module")
def client():
    with connected("local:2") as made:
        yield made


@pytest.fixture(scope="module")
def measurer(device, tmp_path_factory, client):
    with measurer_of(device, tmp_path_factory.mktemp("store"), cluster=client) as made:
        yield made


def test_each_bad_candidate_costs_itself_only(measurer):
    wanted = [
        (kernels.scaled(2.0), kernels.UNTOUCHED, None),
        (kernels.scaled(2.5), kernels.BROKEN, "build"),
        (kernels.calling("abort"), kernels.UNTOUCHED, "crash"),
        (kernels.scaled(3.0), kernels.UNTOUCHED, None),
    ]
    programs = [kernels.known_to(measurer, module, trace) for module, trace, _ in wanted]
    found = measurer.measure(programs)
    assert [m.program for m in found] == programs
    assert [m.error for m in found] == [error for *_, error in wanted]
    assert all(len(m.latencies_s) == 3 for m in found if m.error is None)
    (cold,) = measurer.measure_each(programs[:1], cold=True)
    assert cold.error is None


def test_a_worker_that_dies_costs_its_builds_alone(measurer, client):
    programs = [kernels.known_to(measurer, kernels.scaled(10.0 + i)) for i in range(12)]
    rounds = measurer.rounds()
    try:
        rounds.begin(programs[:6], {})
        rounds.begin(programs[6:], {})
        found = [rounds.next()]
        process = min(client.run(os.getpid).items())[1]
        threading.Timer(0.2, os.kill, (process, signal.SIGKILL)).start()
        found += [rounds.next() for _ in programs[1:]]
    finally:
        rounds.stop()
    assert {m.program.key for m in found} == {p.key for p in programs}
    assert [m.error for m in found] == [None] * 12
