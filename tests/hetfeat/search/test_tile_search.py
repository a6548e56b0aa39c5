"""Strategies of tile spaces on a task: a loop of 4096 whose middle split is fastest."""

import json
import math
from types import SimpleNamespace

import pytest
import stores

from hetfeat.dataset.store import RecordStore
from hetfeat.records import Measurement, Program, Task
from hetfeat.schedules.trace import dump
from hetfeat.search.strategies import EVOLUTION, STRATEGIES
from hetfeat.search.tile_search import TileSearch
from hetfeat.tune.scheduler import TaskState
from hetfeat.tune.session import Budget
from hetfeat.tune.tuner import TuningOptions, tune

BATCH = 8
EXTENT = 4096
TASK = Task("0" * 16, "matmul", ((1, 8), (8, 8)), "float32", 1e6)
TILES = [name for name in STRATEGIES if name != EVOLUTION]


def program(outer: int, inner: int) -> Program:
    draw = ["SamplePerfectTile", ["l1"], [2, 0], ["v1", "v2"]]
    split = ["Split", ["l1", "v1", "v2"], [1], ["l2", "l3"]]
    return Program(TASK, dump([[draw, split], [[0, [outer, inner]]]]))


def inner_of(of: Program) -> int:
    return json.loads(of.trace)[1][0][1][1]


class Device:
    """Applies any split but those with an inner loop that is refused."""

    profile = stores.profile("a")

    def __init__(self, refused: int | None = None):
        self.refused, self.measured = refused, []

    def sample(self, task, count, seed):
        return [program(EXTENT, 1), program(1, EXTENT)][:count]

    def apply(self, task, traces):
        found = [Program(task, trace) for trace in traces]
        return [p for p in found if inner_of(p) != self.refused]

    def for_each(self, function, items):
        return [function(item) for item in items]

    def measure_each(self, programs, incumbent_s=None, cold=False):
        for p in programs:
            self.measured.append(p)
            yield measured(p)


def measured(p: Program) -> Measurement:
    latency_s = 1e-5 * (1 + abs(math.log2(inner_of(p)) - 6))
    return Measurement(p, "a", (latency_s,), None, 1.0, "x")


def searched(search: TileSearch, rounds: int) -> list[Program]:
    asked = []
    for _ in range(rounds):
        found = search.ask(BATCH)
        asked += found
        search.tell([measured(p) for p in found])
    return asked


@pytest.mark.parametrize(
    "strategy", [pytest.param(name, marks=[pytest.mark.slow] * (name == "xgb")) for name in TILES]
)
def test_every_strategy_finds_the_best_split_and_asks_for_none_twice(strategy):
    search = TileSearch(strategy, TASK, Device(), seed=0)
    asked = searched(search, 60)
    assert {inner_of(p) for p in asked} == {2**n for n in range(13)}
    assert len({p.key for p in asked}) == len(asked)
    assert search.ask(BATCH) == []


def test_what_it_is_given_comes_first():
    given = [program(EXTENT // 64, 64)]
    first = TileSearch("random", TASK, Device(), 0, warm_starts=lambda _: given).ask(BATCH)
    assert [inner_of(p) for p in first] == [64, 1, EXTENT]


def test_greedy_search_starts_from_the_fastest_it_was_told_of():
    search = TileSearch("gbfs", TASK, Device(), 0)
    search.tell([measured(program(EXTENT // n, n)) for n in (1, 32)])
    assert {inner_of(p) for p in search.ask(BATCH)} == {16, 64}


def test_programs_that_differ_in_more_than_tiles_are_no_states():
    other = program(EXTENT // 16, 16)
    other = Program(TASK, other.trace.replace('"Split"', '"SplitOtherwise"'))
    search = TileSearch("gbfs", TASK, Device(), 0)
    search.tell([measured(p) for p in (program(EXTENT, 1), program(EXTENT // 32, 32), other)])
    assert {inner_of(p) for p in search.ask(BATCH)} == {16, 64}


def test_what_does_not_apply_is_passed_over():
    asked = searched(TileSearch("gbfs", TASK, Device(refused=64), 0), 60)
    assert {inner_of(p) for p in asked} == {2**n for n in range(13)} - {64}


def test_a_space_that_is_refused_everywhere_is_given_up():
    class Refusing(Device):
        rounds = 0

        def apply(self, task, traces):
            self.rounds += 1
            return []

    device = Refusing()
    search = TileSearch("random", TASK, device, 0, fruitless_states=5)
    search.tell([measured(program(EXTENT, 1))])
    assert search.ask(1) == []
    assert device.rounds == 5


def test_after_programs_that_failed_others_are_drawn():
    class Drawing(Device):
        def sample(self, task, count, seed):
            return [program(EXTENT >> seed % 12, 1 << seed % 12)]

    search = TileSearch("gbfs", TASK, Drawing(), 0)
    (first,) = search.ask(BATCH)
    search.tell([Measurement(first, "a", (), "run", 1.0, "x")])
    (second,) = search.ask(BATCH)
    assert second.key != first.key


def test_a_carried_over_tile_that_the_space_does_not_allow_is_not_learnt_from():
    def narrow(inner):
        return Program(TASK, program(EXTENT // inner, inner).trace.replace("[2,0]", "[2,64]"))

    search = TileSearch("rnn", TASK, Device(), 0)
    search.tell([measured(narrow(64)), measured(narrow(128))])
    assert {inner_of(p) for p in search.ask(BATCH)} <= {2**n for n in range(7)}


@pytest.mark.parametrize("strategy", TILES)
def test_a_design_space_without_tiles_ends(strategy):
    class Untiled(Device):
        def sample(self, task, count, seed):
            return [Program(TASK, '[[["Parallel",["l1"],[],[]]],[]]')]

    search = TileSearch(strategy, TASK, Untiled(), 0)
    (only,) = search.ask(BATCH)
    search.tell([Measurement(only, "a", (1.0,), None, 1.0, "x")])
    assert search.ask(BATCH) == []


def test_what_was_told_is_looked_at_once():
    looked = []

    class Noted(Program):
        @property
        def key(self):
            looked.append(self)
            return super().key

    search = TileSearch("gbfs", TASK, Device(), 0)
    search.tell([measured(Noted(TASK, program(EXTENT // n, n).trace)) for n in (1, 2, 4)])
    before = len(looked)
    searched(search, 3)
    assert len(looked) == before


def test_the_tuner_takes_one(tmp_path):
    device = Device()
    journal = RecordStore.create(tmp_path / "journal")
    tuned = tune(
        [(TASK, 1)],
        measurer=device,
        journal=journal,
        budget=Budget(60, 0, 13),
        options=TuningOptions("gbfs"),
    )
    assert tuned.trials == 13 == len({p.key for p in device.measured})
    assert inner_of(tuned.best[TASK.hash].program) == 64


def test_what_is_expected_of_a_task_outlives_an_interrupt(tmp_path):
    """40 programs of one latency, of other sketches, and a run that goes on from them."""
    journal = RecordStore.create(tmp_path / "journal")
    trace = program(64, 64).trace
    for number in range(40):
        other = Program(TASK, trace.replace('"Split"', f'"Split{number}"'))
        journal.append([Measurement(other, "a", (1e-5,), None, float(number), "x")])
    gains = []
    tune(
        [(TASK, 1)],
        measurer=Device(),
        journal=journal,
        budget=Budget(60, 0, 48),
        options=TuningOptions("gbfs"),
        on_round=lambda progress, state: gains.append(state.gain),
    )
    assert gains[0] < 0.05


def test_what_the_next_round_is_expected_to_save_follows_programs_not_rounds():
    def gain(rounds: list[int]) -> float:
        state = TaskState(TASK, 1, SimpleNamespace(tell=lambda found: None))
        for count in (1, *rounds):
            state.tell([Measurement(program(64, 64), "d", (1e-3,), None, 1.0, "tvm")] * count)
        return state.gain

    assert gain([1] * BATCH) == pytest.approx(gain([BATCH]))
    assert gain([BATCH, 1]) < gain([BATCH]) < gain([BATCH // 2])
