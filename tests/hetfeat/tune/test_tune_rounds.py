"""Rounds in flight: others build while a device measures. Builds and runs are sleeps here."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import stores

from hetfeat.dataset.store import RecordStore
from hetfeat.errors import WorkFailed
from hetfeat.measure.rounds import BuiltLibrary, BuiltRounds, InTurn
from hetfeat.records import Measurement, Program, Task
from hetfeat.tune.collect import CollectConfig, Plan, collect
from hetfeat.tune.guidance import GuidanceConfig
from hetfeat.tune.session import Budget
from hetfeat.tune.tuner import TuningOptions, tune

TASKS = [
    (Task(f"{number:016d}", "conv2d", ((1, 8), (number, 8)), "float32", 1e6 * (1 + number)), 1)
    for number in range(6)
]
RUN_S = 0.02


class SleepingBuilders:
    """Builders; every eighth program takes them four times as long, every 50th does not build."""

    def __init__(self, builders: int, build_s: float) -> None:
        self.threads, self.build_s, self.checked = ThreadPoolExecutor(builders), build_s, 0
        self.open, self.futures = set(), []

    def submit(self, program, on_built):
        self.open.add(program.key)
        self.futures.append(self.threads.submit(self._build, program, on_built))

    def check(self):
        self.checked += 1

    def forget(self):
        for future in self.futures:
            future.cancel()

    def _build(self, program, on_built):
        number = number_of(program)
        time.sleep(self.build_s * (4 if number % 8 == 0 else 1))
        self.open.discard(program.key)
        on_built(program, "build" if number % 50 == 3 else BuiltLibrary(b"", []))


def number_of(program: Program) -> int:
    return int(json.loads(program.trace)[0][0][2][0])


class Device:
    """Proposes numbers at once, and sleeps `RUN_S` for each that it runs."""

    profile = stores.profile("a")

    def __init__(self, builder, interrupt_after=None) -> None:
        self.builder, self.spans, self.interrupt_after = builder, [], interrupt_after
        self.measured_again = 0

    def sample(self, task, count, seed):
        order = np.random.default_rng(seed).permutation(400)[:count]
        return [self._program(task, int(number)) for number in order]

    def vary(self, task, parents, count, seed):
        near = {(number_of(Program(task, p)) + d) % 400 for p in parents for d in (-1, 1)}
        return [self._program(task, number) for number in sorted(near)[:count]]

    def apply(self, task, traces):
        return [self._program(task, number_of(Program(task, trace))) for trace in traces]

    def for_each(self, function, items):
        return [function(item) for item in items]

    def rounds(self):
        return BuiltRounds(self.builder, self._run, lambda p, kind: self._measurement(p, (), kind))

    def measure(self, programs):
        assert not self.builder.open, "it would let go of them"
        self.measured_again += len(programs)
        return [self._run(program, None, None) for program in programs]

    def _run(self, program, built, best_s):
        if self.interrupt_after is not None and len(self.spans) >= self.interrupt_after:
            raise KeyboardInterrupt
        began = time.monotonic()
        time.sleep(RUN_S)
        self.spans.append((began, time.monotonic()))
        return self._measurement(program, (1e-6 * (1 + abs(number_of(program) - 7)),), None)

    def _measurement(self, program, latencies, error):
        return Measurement(program, "a", latencies, error, time.time(), "x")

    def _program(self, task, number):
        features = np.zeros((1, 164), np.float32)
        features[0, 16] = np.log2(1 + number)
        return Program(task, f'[[["Number",[],[{number}],[]]],[]]', features)


def run(device, folder, trials=200, guidance=GuidanceConfig()):  # noqa: B008
    journal = RecordStore.create(folder)
    budget = Budget(600.0, 0, trials)
    options = TuningOptions(guidance=guidance)
    return tune(TASKS, measurer=device, journal=journal, budget=budget, options=options), journal


def collected(device, folder, programs=24, drift_interval_s=600.0):
    store = RecordStore.create(folder)
    plan = Plan(programs, evaluation_tasks=1, evaluation_programs=40)
    config = CollectConfig(drift_interval_s=drift_interval_s)
    *_, progress = collect(store, [device], [task for task, _ in TASKS], plan, config)
    assert progress.tasks == len(TASKS)
    return store


def busy_share(device):
    """Of the time from the first run to the last, the share that the device runs."""
    whole_s = device.spans[-1][1] - device.spans[0][0]
    return sum(end - began for began, end in device.spans) / whole_s


def largest_busy_share(use, tries=3, enough=0.9):
    """The same of the busiest of a few runs: a host that is slow for a second idles the device."""
    found = 0.0
    for number in range(tries):
        device = Device(SleepingBuilders(24, 0.05))
        use(device, str(number))
        found = max(found, busy_share(device))
        if found > enough:
            break
    return found


@pytest.mark.clock
def test_with_builders_enough_the_device_idles_less_than_a_tenth(tmp_path):
    """Learning, which takes the processor here, is left out."""

    def use(device, name):
        tuned, _ = run(device, tmp_path / name, guidance=GuidanceConfig(first_fit=10**6))
        assert tuned.trials == 200

    assert largest_busy_share(use) > 0.9


@pytest.mark.clock
def test_while_records_are_collected_it_idles_less_than_a_tenth_too(tmp_path):
    def use(device, name):
        collected(device, tmp_path / name, 64)
        assert len(device.spans) > 300

    assert largest_busy_share(use) > 0.9


def test_the_same_programs_are_collected_however_fast_builders_are(tmp_path):
    found = []
    for builders in (3, 24):
        device = Device(SleepingBuilders(builders, 0.004))
        store = collected(device, tmp_path / str(builders), drift_interval_s=0.1)
        assert device.measured_again > 4, "with nothing under way"
        found.append(sorted(store.read(["program"])["program"].to_pylist()))
    assert found[0] == found[1]
    assert len(set(found[0])) == len(found[0]) > 5 * 24


def test_a_seed_gives_the_same_rounds_however_fast_builders_are(tmp_path):
    found = []
    for builders in (3, 24):
        _, journal = run(Device(SleepingBuilders(builders, 0.004)), tmp_path / str(builders), 120)
        found.append(sorted(journal.read(["program"])["program"].to_pylist()))
    assert found[0] == found[1]
    assert len(set(found[0])) == 120


def test_what_was_measured_is_kept_and_gone_on_from(tmp_path):
    interrupted = Device(SleepingBuilders(8, 0.002), interrupt_after=45)
    first, journal = run(interrupted, tmp_path / "s", 100)
    assert first.ended == "interrupted"
    assert first.trials == journal.read().num_rows >= 45
    second, journal = run(Device(SleepingBuilders(8, 0.002)), tmp_path / "s", 100)
    assert (second.resumed, second.trials) == (first.trials, 100 - first.trials)
    assert len(set(journal.read(["program"])["program"].to_pylist())) == 100
    assert second.failed + first.failed > 0, "of what does not build"


def test_builders_that_are_gone_are_said(tmp_path):
    class Gone(SleepingBuilders):
        def submit(self, program, on_built):
            pass

        def check(self):
            raise WorkFailed("builders that were lost", "some", "start them")

    with pytest.raises(WorkFailed, match="lost"):
        run(Device(Gone(1, 0)), tmp_path / "s", 10)
    assert not [t for t in threading.enumerate() if "run_all" in t.name]


class Holding:
    """Holds something while it measures, as the lock of timing is held."""

    is_held = False

    def measure_each(self, programs, incumbent_s):
        self.is_held = True
        yield from programs
        self.is_held = False


def test_a_round_in_turn_lets_go_of_the_machine_with_its_last_measurement():
    device = Holding()
    rounds = InTurn(device)
    rounds.begin(["first", "second"], {})
    assert rounds.next() == "first" and device.is_held
    assert rounds.next() == "second" and not device.is_held
