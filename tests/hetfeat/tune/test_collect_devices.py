"""Collecting on several devices: what is proposed, replayed, kept, and taken up again."""

import itertools
import random
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field

import numpy as np
import pytest
import stores

from hetfeat.dataset import sidecar_files
from hetfeat.dataset.store import RecordStore
from hetfeat.errors import WorkFailed
from hetfeat.measure.machine_lock import building, timing
from hetfeat.records import Measurement, Program, Task
from hetfeat.tune.collect import CollectConfig, Plan, collect
from hetfeat.tune.drift import drift
from hetfeat.tune.evaluation_tasks import evaluation_order
from registry.jobs import collect as collection

SPACE = {f"{number:016d}": 6 if number == 2 else 400 for number in range(6)}
"""Distinct programs of each task; the third has hardly any."""


@dataclass
class Device:
    """Measures by a formula. Program 1 of a task fails to build, program 2 never repeats."""

    name: str
    slowdown: float = 1.0
    measured: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.profile = stores.profile(self.name)

    def sample(self, task: Task, count: int, seed: int) -> list[Program]:
        space = SPACE[task.hash]
        # Children draw the same program.
        distinct = count - 1 if count > CollectConfig().batch else count
        drawn = random.Random(f"{seed} {task.hash}").sample(range(space), min(space, distinct))
        return [self._program(task, number) for number in drawn]

    def vary(self, task: Task, parents: list[str], count: int, seed: int) -> list[Program]:
        near = {int(parent.strip("[],")) + step for parent in parents for step in (-1, 1)}
        return [self._program(task, n) for n in sorted(near) if 0 <= n < SPACE[task.hash]]

    def measure_each(self, programs, incumbent_s=None):
        for program in programs:
            number = int(program.trace.strip("[],"))
            self.measured.append((program.task.hash, program.trace))
            latency_s = self.slowdown * (1 + number) * 1e-6
            repeats = {
                1: (),
                2: (latency_s, latency_s, 2 * latency_s),
            }.get(number, (latency_s, latency_s, 1.02 * latency_s))
            error = None if repeats else "build"
            yield Measurement(program, self.name, repeats, error, 1.0, "tvm")

    def measure(self, programs, incumbent_s=None):
        return list(self.measure_each(programs, incumbent_s))

    def _program(self, task: Task, number: int) -> Program:
        return Program(task, f"[[{number}],[]]", np.zeros((1, 164), np.float32))


TASKS = [stores.task(number) for number in range(6)]
PLAN = Plan(programs_per_task=8, evaluation_tasks=2, evaluation_programs=40)


def devices(*names: str) -> list[Device]:
    return [Device(name, slowdown=i + 1.0) for i, name in enumerate(names)]


def kept(store: RecordStore) -> dict[str, set[tuple[str, str]]]:
    """Task and program of every record, by device; fails on a duplicate."""
    table = store.read(["device", "task", "program"]).to_pydict()
    rows = list(zip(*table.values(), strict=True))
    assert len(set(rows)) == len(rows)
    found: dict[str, set[tuple[str, str]]] = {}
    for device, task, program in rows:
        found.setdefault(device, set()).add((task, program))
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    store = RecordStore.create(tmp_path_factory.mktemp("whole") / "records")
    used = devices("a", "b", "c")
    *_, progress = collect(store, used, TASKS, PLAN)
    store.compact()
    return store, used, progress


def test_every_device_has_run_the_same_programs(whole):
    store, _, _ = whole
    found = kept(store)
    failed = {
        (row["task"], row["program"])
        for row in store.read(["task", "program", "error"]).to_pylist()
        if row["error"]
    }
    assert failed
    assert found["b"] == found["c"] == found["a"] - failed


def test_evaluation_tasks_are_dense_and_the_rest_is_not(whole):
    store, _, progress = whole
    chosen = sidecar_files.evaluation_tasks(store.path)
    assert len(chosen) == 2 and TASKS[2].hash not in chosen
    rejected = [
        (row["device"], row["task"])
        for row in sidecar_files.read_rows(store.path, sidecar_files.REJECTED)
    ]
    for task in TASKS:
        counts = {d: sum(one == task.hash for one, _ in pairs) for d, pairs in kept(store).items()}
        if task.hash in chosen:
            assert min(counts.values()) >= 40
        else:
            wanted = min(8, SPACE[task.hash])
            assert counts["a"] + rejected.count(("a", task.hash)) == wanted
    assert progress.tasks == len(TASKS)


def test_half_of_the_programs_vary_the_best(whole):
    """The best are the first of the space here: varying them finds the low numbers."""
    _, (first, *_), _ = whole
    (chosen, *_) = sidecar_files.evaluation_tasks(whole[0].path)
    numbers = [int(trace.strip("[],")) for task, trace in first.measured if task == chosen]
    assert np.median(numbers[20:40]) < np.median(numbers[:20])


def test_what_does_not_repeat_is_not_kept_and_not_asked_again(whole):
    store, _, progress = whole
    rejected = list(sidecar_files.read_rows(store.path, sidecar_files.REJECTED))
    assert rejected and progress.rejected == len(rejected)
    for row in rejected:
        assert row["trace"] == "[[2],[]]"
        assert (row["task"], row["program"]) not in kept(store)[row["device"]]
    again = devices("a", "b", "c")
    list(collect(store, again, TASKS, PLAN))
    known = {
        (row["task"], row["trace"])
        for row in sidecar_files.read_rows(store.path, sidecar_files.DRIFT_PROBES)
    }
    assert all(set(device.measured) <= known for device in again)


@pytest.mark.parametrize("stop", [1, 7, 17, 40, 95, 200])
def test_an_interrupted_collection_goes_on_where_it_was(whole, tmp_path, stop):
    store = RecordStore.create(tmp_path / "records")
    run = collect(store, devices("a", "b", "c"), TASKS, PLAN)
    for _ in itertools.islice(run, stop):
        pass
    run.close()
    before = {d: set(pairs) for d, pairs in kept(store).items()}
    later = devices("a", "b", "c")
    *_, progress = collect(store, later, TASKS, PLAN)
    assert kept(store).keys() == {"a", "b", "c"}
    for device, pairs in before.items():
        assert pairs <= kept(store)[device]
    assert progress.known == stop
    everywhere = set.intersection(*kept(store).values())
    for task in sidecar_files.evaluation_tasks(store.path):
        assert sum(one == task for one, _ in everywhere) >= 40
    assert sidecar_files.evaluation_tasks(store.path) == sidecar_files.evaluation_tasks(
        whole[0].path
    )


def test_a_task_without_programs_is_passed_over(tmp_path, caplog):
    class Refusing(Device):
        def sample(self, task: Task, count: int, seed: int) -> list[Program]:
            if task in refused:
                raise WorkFailed(f"task {task.hash}", "programs", "leave it out")
            return super().sample(task, count, seed)

    refused = TASKS[:1]
    store = RecordStore.create(tmp_path / "store")
    plan = Plan(programs_per_task=4, evaluation_tasks=1, evaluation_programs=8)
    (*_, last) = collect(store, [Refusing("a")], TASKS, plan)
    assert last.tasks == len(TASKS) - 1
    assert {task for task, _ in kept(store)["a"]} == {task.hash for task in TASKS[1:]}
    assert f"task {TASKS[0].hash}" in caplog.text

    refused = TASKS
    with pytest.raises(WorkFailed, match="task"):
        list(collect(RecordStore.create(tmp_path / "none"), [Refusing("a")], TASKS, plan))


def test_a_device_named_twice_is_one(monkeypatch, tmp_path):
    class Prepared(Exception):
        pass

    def prepare(profiles, *_):
        raise Prepared(profiles)

    monkeypatch.setattr(collection, "find_profile", lambda name: stores.profile("here"))
    monkeypatch.setattr(collection, "prepare", prepare)
    with pytest.raises(Prepared) as asked:
        collection.collect_networks(("local", "here"), ("resnet18",), tmp_path / "s", Plan(1), ())
    assert asked.value.args == ([stores.profile("here")],)


def test_the_probe_shows_a_device_that_drifts(tmp_path):
    store = RecordStore.create(tmp_path / "records")
    steady, drifting = devices("steady", "drifting")
    config = CollectConfig(drift_programs=3, drift_interval_s=0.0)
    for progress in collect(store, [steady, drifting], TASKS, PLAN, config):
        drifting.slowdown = 2.0 * (1 + progress.programs / 100)
    strayed = drift(store)
    assert strayed["steady"] == 0.0
    assert strayed["drifting"] > 0.1
    assert (
        len(
            {row["task"] for row in sidecar_files.read_rows(store.path, sidecar_files.DRIFT_PROBES)}
        )
        == 3
    )


def test_operators_take_turns_and_one_epilogue_stands_for_all():
    twin = Task("twin", TASKS[0].operator, (*TASKS[0].shapes[:2], (9, 9)), "float32", 1.0)
    order = list(evaluation_order([*TASKS, twin], seed=3))
    assert len(order) == len(TASKS)
    assert {task.operator for task in order[:3]} == {"conv2d", "matmul", "softmax"}
    assert order == list(evaluation_order([twin, *reversed(TASKS)], seed=3))


@pytest.mark.parametrize(
    ("ours", "theirs", "together"),
    [(timing, "timing", False), (timing, "building", False), (building, "building", True)],
)
def test_whoever_times_has_the_machine_alone(tmp_path, monkeypatch, ours, theirs, together):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = f"""
        import tempfile
        tempfile.tempdir = {str(tmp_path)!r}
        from hetfeat.measure.machine_lock import {theirs}
        print("asking", flush=True)
        with {theirs}():
            print("in", flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with ours():
        other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert other.stdout.readline() == "asking\n"
        if together:
            assert other.wait(60) == 0
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                other.wait(0.5)
    assert other.stdout.read() == "in\n"
    assert other.wait(60) == 0
