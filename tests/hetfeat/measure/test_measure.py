"""The measuring children, with candidates that crash, hang and eat memory."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Literal

import kernels
import psutil
import pytest

from hetfeat.errors import WorkFailed
from hetfeat.measure.build_timeout import BuildTimeoutOptions
from hetfeat.measure.factory import measurers_of
from hetfeat.measure.local import LocalMeasurer, MeasureOptions
from hetfeat.measure.messages import Hello, Message, RequestFailed
from hetfeat.measure.timing_options import TimingOptions
from hetfeat.measure.worker import Lost, Worker
from hetfeat.records import Task

pytestmark = [pytest.mark.slow, pytest.mark.tvm]

MEMORY_LIMIT_BYTES = 4 * 2**30
OPTIONS = MeasureOptions(run_timeout_s=6.0, memory_limit_bytes=MEMORY_LIMIT_BYTES)


class NoSuchRequest(Message[None]):
    do: Literal["no such request"] = "no such request"


@pytest.fixture(scope="module")
def measurer(device):
    with LocalMeasurer(device, OPTIONS) as made:
        yield made


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """What children are asked to do, as it happens."""
    kinds: list[str] = []
    ask = Worker.ask

    def noting(self, request, timeout_s):
        kinds.append(request.do)
        return ask(self, request, timeout_s)

    monkeypatch.setattr(Worker, "ask", noting)
    return kinds


def children() -> list[psutil.Process]:
    """Measuring children of this process that still run."""
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE and "hetfeat.measure.child" in child.cmdline()
    ]


def wait_until(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_each_bad_candidate_costs_itself_only(measurer):
    wanted = [
        (kernels.scaled(2.0), None),
        (kernels.calling("abort"), "crash"),
        (kernels.scaled(3.0), None),
        (kernels.calling("sleep", 3600), "timeout"),
        (kernels.scaled(4.0), None),
        (kernels.allocating(2 * MEMORY_LIMIT_BYTES), "memory"),
        (kernels.scaled(5.0), None),
    ]
    programs = [kernels.known_to(measurer, module) for module, _ in wanted]
    found = measurer.measure(programs)
    assert [m.program for m in found] == programs
    assert [m.error for m in found] == [error for _, error in wanted]
    assert all(len(m.latencies_s) == 3 for m in found if m.error is None)


@pytest.mark.clock
def test_cold_runs_fetch_their_weights_from_memory(measurer):
    large = kernels.known_to(measurer, kernels.weighted(1024))
    crashing = kernels.known_to(measurer, kernels.calling("abort"))
    small = kernels.known_to(measurer, kernels.scaled(8.0))
    (warm,) = measurer.measure([large])
    cold = {m.program: m for m in measurer.measure_each([large, crashing, small], cold=True)}
    assert [cold[p].error for p in (large, crashing, small)] == [None, "crash", None]
    assert cold[large].latency_s > 1.5 * warm.latency_s


@pytest.mark.clock
def test_one_build_serves_devices_that_differ_in_threads_only(device, tmp_path, asked):
    single = dataclasses.replace(
        device, name="single", threads=1, target=device.target | {"num-cores": 1}
    )
    sleeping = [kernels.in_parallel(kernels.calling("usleep", 5000 + i)) for i in range(3)]
    with contextlib.ExitStack() as stack:
        pair = [stack.enter_context(m) for m in measurers_of([device, single], tmp_path)]
        programs = [kernels.known_to(pair[0], module) for module in sleeping]
        both, alone, again = (m.measure(programs) for m in (*pair, pair[0]))
    assert {m.device for m in both} == {"here"} and {m.device for m in alone} == {"single"}
    for fast, slow, repeated in zip(both, alone, again, strict=True):
        assert slow.latency_s > 1.5 * fast.latency_s  # half of the threads: all sleep alike
        assert slow.latency_s > 1.5 * repeated.latency_s
    assert asked.count("build") == 2 * len(programs)  # both; let go; again


def test_devices_with_other_instructions_are_built_apart(device, tmp_path):
    older = dataclasses.replace(device, target=device.target | {"mcpu": "x86-64-v2"})
    more = dataclasses.replace(device, threads=3, target=device.target | {"num-cores": 3})
    workers = [m.pool.workers for m in measurers_of([device, older, more], tmp_path)]
    assert len({id(each) for each in workers}) == 3


def test_traces_that_do_not_replay_are_data(measurer):
    module = kernels.scaled(6.0)
    traces = [kernels.BROKEN, kernels.UNTOUCHED, '[[["Nonsense",[],[],[]]],[]]', "[]", "not JSON"]
    found = measurer.measure([kernels.known_to(measurer, module, trace) for trace in traces])
    assert [m.error for m in found] == ["build", None, "build", "build", "build"]


def test_features_of_recorded_programs(measurer):
    """Those that sampling found, again from the traces; none where a trace does not replay."""
    module = kernels.matmul(32)
    task = kernels.known_to(measurer, module).task
    sampled = measurer.sample(task, 4, seed=1)
    bare = [dataclasses.replace(program, stores=None) for program in sampled]
    broken = dataclasses.replace(bare[0], trace=kernels.BROKEN)
    unknown = dataclasses.replace(bare[0], task=dataclasses.replace(task, hash="0" * 16))
    found = measurer.pool.with_features([bare[0], broken, unknown, *bare[1:]])
    assert found == [bare[0], broken, unknown, *bare[1:]]
    assert found[1].stores is found[2].stores is None
    for program, again in zip(sampled, [found[0], *found[3:]], strict=True):
        assert again.stores.tobytes() == program.stores.tobytes()


def test_the_same_program_twice_in_a_batch(measurer):
    program = kernels.known_to(measurer, kernels.scaled(7.0))
    found = measurer.measure([program, program, program])
    assert [m.error for m in found] == [None] * 3


def test_measurements_come_as_they_are_made(measurer, asked):
    """The first is there before the second has run: an interrupt loses only what is in flight."""
    modules = [kernels.scaled(8.0 + i) for i in range(3)]
    found = measurer.measure_each([kernels.known_to(measurer, module) for module in modules])
    for number in range(1, 4):
        next(found)
        assert asked.count("run") == number


def test_a_child_killed_from_outside_costs_the_candidate_it_was_at(measurer):
    hanging = kernels.calling("sleep", 3602)
    modules = [kernels.scaled(9.0), hanging, kernels.scaled(10.0), kernels.scaled(11.0)]
    programs = [kernels.known_to(measurer, module) for module in modules]
    running: list[int] = []
    ask = Worker.ask

    def noting_who_runs_it(self, request, timeout_s):
        if request.do == "run" and request.program == programs[1].key:
            running.append(self._process.pid)
        return ask(self, request, timeout_s)

    def kill_it() -> None:
        wait_until(lambda: running)
        time.sleep(0.5)
        os.kill(running[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_it)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "ask", noting_who_runs_it)
        killer.start()
        found = measurer.measure(programs)
    killer.join()
    assert [m.error for m in found] == [None, "crash", None, None]
    assert running[0] not in [child.pid for child in children()]


def test_children_time_programs_as_their_parent_says(device):
    """Options of timing had stayed in the parent."""
    options = dataclasses.replace(OPTIONS, timing=TimingOptions(repeats=5))
    with LocalMeasurer(device, options, builders=1) as measurer:
        program = kernels.known_to(measurer, kernels.scaled(2.0))
        (found,) = measurer.measure([program])
    assert len(found.latencies_s) == 5


def test_a_request_that_is_none_fails_and_the_child_goes_on(measurer):
    (worker, *_) = measurer.pool.workers
    generation = worker.generation
    with pytest.raises(RequestFailed, match="a request") as failed:
        worker.ask(NoSuchRequest(), 60)
    assert failed.value.kind == "schedule"
    worker.ask(Hello(), 60)
    assert worker.generation == generation


def test_a_first_run_far_over_the_best_is_not_repeated(measurer):
    program = kernels.known_to(measurer, kernels.calling("usleep", 5000))
    (slow,) = measurer.measure([program], {program.task.hash: 1e-6})
    assert len(slow.latencies_s) == 1


def test_no_child_is_left_behind(device):
    before = {child.pid for child in children()}
    with LocalMeasurer(device) as measurer:
        started = {child.pid for child in children()} - before
        assert len(started) == device.threads
        measurer.measure([kernels.known_to(measurer, kernels.scaled(2.0))])
    assert not started & {child.pid for child in children()}


def test_an_interrupt_ends_at_once_and_leaves_no_child(device):
    """Ctrl-C while both children build: their threads must not start new ones afterwards."""
    signal.siginterrupt(signal.SIGINT, False)  # as TVM's prover leaves it
    before = {child.pid for child in children()}
    timer = threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGINT])
    patient = MeasureOptions(BuildTimeoutOptions(longest_s=3600), run_timeout_s=3600)
    with LocalMeasurer(device, patient) as measurer:
        programs = [kernels.known_to(measurer, kernels.scaled(20.0 + i)) for i in range(6)]
        for worker in measurer.pool.workers:  # a child that hangs while it builds
            os.kill(worker._process.pid, signal.SIGSTOP)
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            measurer.measure(programs)
    assert time.monotonic() - start < 5
    assert {child.pid for child in children()} == before


def test_a_child_dies_with_its_parent(device, child_environment, tmp_path):
    """Even in the middle of a program that hangs, where it reads no requests."""
    code = (
        "import json, sys, threading, kernels, pathlib\n"
        "from hetfeat.devices.profile import DeviceProfile\n"
        "from hetfeat.measure.local import LocalMeasurer, MeasureOptions\n"
        "device = DeviceProfile.from_dict(json.loads(sys.argv[1]), 'given')\n"
        "with LocalMeasurer(device, MeasureOptions(run_timeout_s=3600)) as measurer:\n"
        "    program = kernels.known_to(measurer, kernels.calling('sleep', 3600))\n"
        "    print('ready', flush=True)\n"
        "    measurer.measure([program])\n"
    )
    command = [sys.executable, "-c", code, json.dumps(device.to_dict())]
    parent = subprocess.Popen(command, env=child_environment, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    started = psutil.Process(parent.pid).children()
    assert len(started) == device.threads
    time.sleep(2)
    parent.kill()
    parent.communicate()
    psutil.wait_procs(started, timeout=20)
    assert not [child for child in started if child.is_running()]


def test_an_interrupted_question_is_not_answered_later(device):
    """What a child says to a question given up must not pass for its next answer."""
    worker = Worker("hetfeat.measure.child", [OPTIONS.start(device).model_dump_json()], 1)
    try:
        worker.wait_ready()
        os.kill(worker._process.pid, signal.SIGSTOP)
        threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            worker.ask(NoSuchRequest(), 60)
        assert worker.ask(Hello(), 120) is None
    finally:
        worker.stop()


@pytest.mark.parametrize(("restart_bytes", "replaced"), [(2**40, False), (2**20, True)])
def test_a_child_that_has_grown_is_replaced(device, restart_bytes, replaced):
    options = MeasureOptions(restart_bytes=restart_bytes)
    with LocalMeasurer(device, options, builders=1) as measurer:
        program = kernels.known_to(measurer, kernels.scaled(12.0))
        (worker,) = measurer.pool.workers
        measurer.measure([program] * 2)
        before = worker.generation
        assert [m.error for m in measurer.measure([program] * 2)] == [None, None]
        assert (worker.generation > before) == replaced


def test_a_closed_worker_stays_closed(device):
    worker = Worker("hetfeat.measure.child", [], 1)
    worker.close()
    with pytest.raises(Lost):
        worker.ask(Hello(), 1)


def test_a_child_that_died_for_want_of_memory_says_so(child_environment, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", child_environment["PYTHONPATH"])
    with pytest.raises(Lost) as lost:
        Worker("child_out_of_memory", [], 1).ask(Hello(), 60)
    assert lost.value.kind == "memory"


def test_a_child_gone_before_its_answer_is_read(device):
    """It has died between the moment the answer was announced and the reading of it."""
    worker = Worker("hetfeat.measure.no_such_module", [], 1)
    with pytest.raises(Lost) as lost:
        worker.ask(Hello(), 60)
    assert lost.value.kind == "crash"


@pytest.mark.parametrize("times", [1, 2])
def test_a_child_lost_while_it_draws_programs_is_asked_again(device, monkeypatch, times):
    class Mortal:
        lost = 0

        def ask(self, request, timeout_s):
            if self.lost < times:
                self.lost += 1
                raise Lost("crash")
            return [("[]", "")]

    task = Task("0" * 16, "matmul", ((8, 8), (8, 8)), "float32", 1e3)
    one = Mortal()
    measurer = LocalMeasurer(device, builders=1)
    monkeypatch.setattr(measurer.pool, "_worker_of", lambda index, task: one)
    if times == 1:
        assert [program.trace for program in measurer.sample(task, 4, seed=0)] == ["[]"]
    else:  # not an empty list, which says that there are no programs
        with pytest.raises(WorkFailed, match="no child lives"):
            measurer.sample(task, 4, seed=0)
        one.lost = 0
        assert measurer.vary(task, ["[]"], 4, seed=0) == []


def test_tasks_are_chosen_for_at_once_each_by_one_child(device, monkeypatch):
    """What is proposed does not depend on which child it was."""
    both = threading.Barrier(2, timeout=60)
    asked = {}

    class Child:
        def __init__(self, number):
            self.number = number

        def ask(self, request, timeout_s):
            asked.setdefault(request.task, []).append(self.number)
            words = request.traces if request.do == "apply" else [f"{request.seed} {request.count}"]
            return [(word, "") for word in words]

    children = [Child(0), Child(1)]
    measurer = LocalMeasurer(device, builders=2)
    monkeypatch.setattr(measurer.pool, "_worker_of", lambda index, task: children[index])

    def propose(task):
        both.wait()
        found = measurer.sample(task, 4, seed=3) + measurer.apply(task, ["a", "b", "c"])
        return [program.trace for program in found]

    tasks = [Task(f"{n:016d}", "matmul", ((8, 8), (8, 8)), "float32", 1e3) for n in range(4)]
    assert measurer.for_each(propose, tasks) == [["192 4", "a", "b", "c"]] * 4
    assert [len(set(children)) for children in asked.values()] == [1] * 4
    assert {number for children in asked.values() for number in children} == {0, 1}
    traces = [program.trace for program in measurer.sample(tasks[0], 4, seed=3)]
    assert traces == ["192 2", "193 2"]  # alone, of both


def test_variations_are_new_programs(measurer):
    task = kernels.known_to(measurer, kernels.matmul(32)).task
    parents = [program.trace for program in measurer.sample(task, 2, seed=1)]
    found = {program.trace for program in measurer.vary(task, parents, 6, seed=2)}
    assert found and found.isdisjoint(parents)
