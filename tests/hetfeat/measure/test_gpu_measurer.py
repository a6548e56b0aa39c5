"""Programs that children build into files while another child runs them, here on the CPU."""

import contextlib

import kernels
import psutil
import pytest

from hetfeat.measure.elsewhere import GpuMeasurer
from hetfeat.measure.machine_lock import timing, timing_gpu

pytestmark = [pytest.mark.slow, pytest.mark.tvm]


@pytest.fixture(scope="module")
def measurer(device):
    with GpuMeasurer(device, 2) as made:
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
    assert [m.error for m in found] == [error for *_, error in wanted]
    (cold,) = measurer.measure_each(programs[:1], cold=True)
    assert cold.error is None


def test_rounds_that_are_let_go_of_leave_the_builders_to_the_next(measurer):
    programs = [kernels.known_to(measurer, kernels.scaled(20.0 + i)) for i in range(8)]
    rounds = measurer.rounds()
    rounds.begin(programs, {})
    rounds.next()
    rounds.stop()
    assert [m.error for m in measurer.measure(programs[:2])] == [None, None]


def test_a_gpu_is_timed_while_the_cpu_builds():
    with contextlib.ExitStack() as held:
        held.enter_context(timing())
        held.enter_context(timing_gpu())


def test_builders_and_runner_end_where_no_proposer_starts(device, monkeypatch):
    measurer = GpuMeasurer(device, 1)

    def no_process_left():
        raise OSError("no process left")

    monkeypatch.setattr(measurer.pool, "__enter__", no_process_left)
    before = set(psutil.Process().children())
    with pytest.raises(OSError, match="no process left"), measurer:
        pass
    assert set(psutil.Process().children()) == before
