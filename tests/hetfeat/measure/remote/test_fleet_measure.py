"""Measuring over TVM's RPC, while servers, trackers and links fail in every way."""

import dataclasses
import random
import signal
import threading
import time

import fleets
import kernels
import pytest

from hetfeat.errors import RequestError
from hetfeat.measure.base import DeviceLost
from hetfeat.measure.remote import session
from hetfeat.measure.remote.measurer import RemoteMeasurer, RemoteOptions
from hetfeat.measure.remote.session import SessionOptions
from hetfeat.measure.worker import Worker

SESSION = SessionOptions(
    run_timeout_s=4.0, patience_s=60.0, programs_s=2.0, margin_s=1.0, connect_timeout_s=15.0
)

pytestmark = [pytest.mark.slow, pytest.mark.tvm]


@pytest.fixture(scope="module")
def shared_fleet():
    with fleets.fleet() as made:
        yield made


@pytest.fixture
def fleet(shared_fleet):
    """A tracker; its servers end with the test."""
    yield shared_fleet
    shared_fleet.stop_servers()


@pytest.fixture(scope="module")
def quarantined():
    """What was quarantined, in pairs of measurements and the reason."""
    return []


@pytest.fixture(scope="module")
def shared_measurer(device, shared_fleet, quarantined):
    route = {"kind": "rpc", "key": shared_fleet.key, "tracker": str(shared_fleet.tracker)}
    # A peak that any server agrees with: tests run beside other work.
    profile = dataclasses.replace(device, route=route, peak_gflops=None)
    take = lambda found, reason: quarantined.append((list(found), reason))  # noqa: E731
    with RemoteMeasurer(profile, take, RemoteOptions(session=SESSION)) as made:
        yield made


@pytest.fixture
def measurer(shared_measurer, quarantined):
    """A measurer that soon gives up what hangs."""
    quarantined.clear()
    return shared_measurer


def slow(measurer, count: int, seconds: float = 0.1) -> list:
    """Programs that take four times so long to measure: something can happen meanwhile."""
    pause_us = int(1e6 * seconds / kernels.ELEMENTS)
    modules = (kernels.calling("usleep", pause_us + i) for i in range(count))
    return [kernels.known_to(measurer, module) for module in modules]


def during(measurer, wanted, break_it, after: int = 2) -> list:
    """Measures, and breaks something while a program runs, so many having run before."""
    sent, timers, broken = [], [], []
    ask = Worker.ask

    def noting(self, request, timeout_s):
        if request.do == "run_file":
            sent.append(request.program)
            if len(sent) == after + 1:
                timers.append(threading.Timer(0.15, lambda: broken.append(break_it())))
                timers[0].start()
        return ask(self, request, timeout_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "ask", noting)
        found = list(measurer.measure_each(wanted))
    timers[0].join()
    assert broken and broken[0] is not False, "nothing was broken"
    return found


def assert_each_once(found, wanted) -> None:
    assert sorted(m.program.key for m in found) == sorted(p.key for p in wanted)
    assert [m.error for m in found] == [None] * len(wanted)


@pytest.mark.fleet
def test_bad_programs_are_data_and_the_server_comes_back(fleet, measurer):
    fleet.start_server()
    wanted = [
        (kernels.scaled(2.0), None),
        (kernels.calling("abort"), "crash"),
        (kernels.scaled(3.0), None),
        (kernels.calling("sleep", 3600), "timeout"),
        (kernels.allocating(2**50), "run"),
        (kernels.scaled(4.0), None),
    ]
    known = [kernels.known_to(measurer, module) for module, _ in wanted]
    broken = kernels.known_to(measurer, kernels.scaled(2.0), kernels.BROKEN)
    found = measurer.measure([*known, broken])
    assert [m.program for m in found] == [*known, broken]
    assert [m.error for m in found] == [*(error for _, error in wanted), "build"]
    assert all(len(m.latencies_s) == 3 for m in found if m.error is None)
    assert {m.device for m in found} == {"here"}


@pytest.mark.fleet
def test_two_servers_share_the_work(fleet, measurer):
    fleet.start_server()
    alone = slow(measurer, 8, 0.15)
    measurer.measure(alone)  # the children start
    began_s = time.monotonic()
    measurer.measure(alone)
    alone_s = time.monotonic() - began_s
    fleet.start_server()
    measurer.measure(alone)
    began_s = time.monotonic()
    assert_each_once(measurer.measure(alone), alone)
    assert time.monotonic() - began_s < 0.75 * alone_s


@pytest.mark.fleet
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_dies_or_hangs_and_another_goes_on(fleet, measurer, how):
    first, _ = fleet.start_server(), fleet.start_server()
    wanted = slow(measurer, 10)
    assert_each_once(during(measurer, wanted, lambda: first.signal(how)), wanted)


def test_a_session_that_is_killed_costs_no_program(fleet, measurer):
    server = fleet.start_server()
    wanted = slow(measurer, 6)
    assert_each_once(during(measurer, wanted, server.kill_session), wanted)


def test_the_only_server_dies_and_is_replaced(fleet, measurer):
    first = fleet.start_server()

    def replace() -> None:
        first.kill()
        fleet.start_server(wait=False)

    wanted = slow(measurer, 6)
    assert_each_once(during(measurer, wanted, replace), wanted)


@pytest.mark.fleet
def test_the_tracker_is_restarted(fleet, measurer):
    fleet.start_server()

    def restart() -> None:
        fleet.stop_tracker()
        fleet.start_tracker()

    wanted = slow(measurer, 12)
    assert_each_once(during(measurer, wanted, restart), wanted)


@pytest.mark.fleet
def test_the_last_server_dies(fleet, shared_measurer):
    """What was measured is handed over, then the device is lost, in bounded time."""
    server = fleet.start_server()
    hasty = RemoteOptions(session=dataclasses.replace(SESSION, patience_s=3.0))
    found = []
    with RemoteMeasurer(shared_measurer.profile, lambda *_: None, hasty) as measurer:
        wanted = slow(measurer, 24, 0.2)
        began_s = time.monotonic()
        threading.Timer(3.0, server.kill).start()
        with pytest.raises(DeviceLost, match="key 'k' at tracker"):
            for measurement in measurer.measure_each(wanted):
                found.append(measurement)
    assert time.monotonic() - began_s < 40
    keys = [m.program.key for m in found]
    assert len(set(keys)) == len(keys)
    assert {m.error for m in found} <= {None}


@pytest.fixture
def link(fleet):
    port = fleets.free_port()
    made = fleets.Link(port)
    fleet.start_server(port=port, advertise=fleets.PROXY_HOST)
    yield made
    made.close()


@pytest.mark.fleet
@pytest.mark.parametrize(("trouble", "value"), [("delay_s", 0.05), ("loss", 0.05)])
def test_a_slow_or_lossy_link_changes_no_latency(measurer, link, trouble, value):
    setattr(link, trouble, value)
    wanted = slow(measurer, 3, 0.02)
    found = measurer.measure(wanted)
    assert_each_once(found, wanted)
    assert link.connections > 0
    assert all(0.02 < m.latency_s < 0.05 for m in found)


@pytest.mark.fleet
def test_a_link_that_breaks_off_now_and_then(measurer, link):
    """Oftener than a program is blamed for a crash: the server denies that there was one."""
    wanted, cuts, over = slow(measurer, 5), [], threading.Event()

    def cut_now_and_then() -> None:
        draw = random.Random(1)
        while not over.wait(draw.uniform(0.5, 3.0)):
            cuts.append(link.cut())

    cutter = threading.Thread(target=cut_now_and_then)
    cutter.start()
    found = measurer.measure(wanted)
    over.set()
    cutter.join()
    assert_each_once(found, wanted)
    assert sum(cuts) >= 2


@pytest.mark.fleet
def test_a_link_that_freezes_for_a_while(measurer, link):
    def freeze() -> None:
        link.frozen = True
        time.sleep(6)
        link.frozen = False

    wanted = slow(measurer, 5)
    assert_each_once(during(measurer, wanted, freeze), wanted)


def test_another_machine_under_the_key_is_turned_away(fleet, measurer, quarantined):
    """One with another number of threads: no record of it counts, and the reason is kept."""
    fleet.start_server(threads=2)
    fleet.start_server(threads=1)
    wanted = slow(measurer, 8)
    assert_each_once(measurer.measure(wanted), wanted)
    assert ([], "1 threads on 2 cores, not 2 on as many or more") in quarantined


def test_what_a_last_probe_discredits_is_quarantined_and_measured_again(
    fleet, measurer, quarantined, monkeypatch
):
    fleet.start_server()
    verdicts = ["3 GFLOP/s, not within 2 times 100", None, None]
    monkeypatch.setattr(session, "slow_or_fast", lambda profile, gflops: verdicts.pop(0))
    wanted = slow(measurer, 3, 0.02)
    assert_each_once(measurer.measure(wanted), wanted)
    ((kept_apart, reason),) = quarantined
    assert reason == "3 GFLOP/s, not within 2 times 100"
    assert {m.program.key for m in kept_apart} <= {p.key for p in wanted} and kept_apart


def test_an_interrupt_ends_it_at_once(fleet, measurer):
    fleet.start_server()
    found = measurer.measure_each([*slow(measurer, 2, 0.01), *slow(measurer, 40, 0.5)])
    next(found)
    began_s = time.monotonic()
    found.close()
    assert time.monotonic() - began_s < 2
    again = slow(measurer, 3)
    assert_each_once(measurer.measure(again), again)


def test_a_gpu_is_refused(device):
    profile = dataclasses.replace(device, target={"kind": "cuda"})
    with pytest.raises(RequestError, match="target is cuda; expected a CPU"):
        RemoteMeasurer(profile, lambda found, reason: None)
