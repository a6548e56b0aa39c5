"""What a network is built of: the last measurements, made up here."""

import stores

from hetfeat.records import Measurement, Program, Task
from hetfeat.tune.finalists import measure_finalists, select_finalists
from hetfeat.workloads.winograd.variants import select_alternatives

FINALISTS, MARGIN, LEAST_SHARE = 3, 1.1, 0.005

TASKS = [Task(f"{n:016d}", "conv2d", ((1, n), (n, n)), "float32", 1e6) for n in range(3)]

CONVOLUTION = ((1, 8, 8, 4), (3, 3, 4, 6), (1, 8, 8, 6))


def measured(task: Task, number: int, latency_s: float | None) -> Measurement:
    times = (latency_s,) if latency_s else ()
    program = Program(task, f"[[],[[{number},0]]]")
    return Measurement(program, "a", times, None if times else "run", 1.0, "x")


def leaders(task: Task, *latencies_s: float) -> dict[str, list[Measurement]]:
    return {task.hash: [measured(task, n, latency) for n, latency in enumerate(latencies_s)]}


class Device:
    """Says what it is told of a program's number."""

    profile = stores.profile("a")

    def __init__(self, cold_s):
        self.cold_s = cold_s

    def measure_each(self, programs, incumbent_s=None, cold=False):
        assert cold
        for program in reversed(programs):
            number = int(program.trace[6])
            yield measured(program.task, number, self.cold_s[number])


class TestFinalists:
    def test_those_not_much_slower_than_the_fastest(self):
        found = leaders(TASKS[0], 1.0, MARGIN - 0.01, MARGIN + 0.01)
        assert select_finalists(found, {TASKS[0]: 1}, {}) == found[TASKS[0].hash][:2]
        level = leaders(TASKS[0], *[1.0] * (FINALISTS + 2))
        assert len(select_finalists(level, {TASKS[0]: 1}, {})) == FINALISTS

    def test_small_tasks_are_taken_as_they_are_unless_there_are_several_variants(self):
        small = LEAST_SHARE / 3
        found = leaders(TASKS[0], 1.0) | leaders(TASKS[1], small, small)
        weights = dict.fromkeys(TASKS[:2], 1)
        assert select_finalists(found, weights, {}) == found[TASKS[0].hash]
        assert select_finalists(found, weights, {TASKS[1].hash: (CONVOLUTION, None)}) == [
            *found[TASKS[0].hash],
            found[TASKS[1].hash][0],
        ]
        often = {TASKS[0]: 1, TASKS[1]: 9}
        assert len(select_finalists(found, often, {})) == 3

    def test_small_is_by_the_network_and_not_by_all_the_variants_of_its_convolutions(self):
        data, _, output = CONVOLUTION
        direct = Task("direct", "conv2d", CONVOLUTION, "float32", 1e6)
        other = Task("2", "winograd", (data, (4, 4, 4, 6), output), "float32", 1e6)
        small = 1.5 * LEAST_SHARE
        found = leaders(direct, 1.0) | leaders(other, 1.0) | leaders(TASKS[0], small, small)
        weights = dict.fromkeys([direct, other, TASKS[0]], 1)
        assert len(select_finalists(found, weights, select_alternatives(weights))) == 4


class TestChoosing:
    def test_the_fastest_with_cold_weights_wins(self):
        candidates = leaders(TASKS[0], 1.0, 1.01, 1.02)[TASKS[0].hash]
        best, cold_s = measure_finalists(candidates, Device([3.0, 2.0, 2.5]))
        assert best == {TASKS[0].hash: candidates[1]}
        assert cold_s == {TASKS[0].hash: 2.0}

    def test_what_does_not_run_again_is_passed_over(self):
        candidates = leaders(TASKS[0], 1.0, 1.01)[TASKS[0].hash]
        best, _ = measure_finalists(candidates, Device([None, 2.0]))
        assert best == {TASKS[0].hash: candidates[1]}
        assert measure_finalists(candidates, Device([None, None])) == ({}, {})

    def test_tasks_do_not_mix(self):
        candidates = [measured(task, number, 1.0) for task in TASKS for number in range(FINALISTS)]
        best, cold_s = measure_finalists(candidates, Device([2.0, 3.0, 1.0]))
        assert {task: m.program.task.hash for task, m in best.items()} == {
            task.hash: task.hash for task in TASKS
        }
        assert set(cold_s.values()) == {1.0}
