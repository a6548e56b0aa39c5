"""The tuning loop and its search, on latencies that the test makes up: no device is needed."""

import json
import math
from collections import Counter
from dataclasses import FrozenInstanceError, dataclass, field, replace

import numpy as np
import pytest
import stores

from hetfeat.dataset.sidecar_files import SPENT, save_spent_s
from hetfeat.dataset.store import RecordStore
from hetfeat.errors import WorkFailed
from hetfeat.measure.base import DeviceLost
from hetfeat.records import Measurement, Program, Task
from hetfeat.schedules.trace import is_custom_sketch
from hetfeat.search.base import Exploration, FixedGuidance
from hetfeat.search.evolution import Evolution, EvolutionConfig
from hetfeat.transfer.schedule_library import Donor, ScheduleLibrary
from hetfeat.tune.guidance import GuidanceConfig
from hetfeat.tune.scheduler import SchedulerConfig
from hetfeat.tune.session import Budget
from hetfeat.tune.tuner import TuningOptions, tune

BATCH = 8
CONFIG = EvolutionConfig()
DEVICE = stores.profile("a")
TASKS = [
    (Task(f"{number:016d}", "conv2d", ((1, 8), (number, 8)), "float32", flops), weight)
    for number, (flops, weight) in enumerate([(1e6, 1), (4e6, 2), (2e6, 1)])
]


def quality(program: Program) -> int:
    """A number of 0 to 99; the latency follows from it."""
    return int(json.loads(program.trace)[0][0][2][0])


KINDS = ("Number", "Parallel")


@dataclass
class FakeDevice:
    """Proposes numbers and times them: the number's distance from 7, in microseconds."""

    programs: int = 100
    interrupt_after: int | None = None
    interrupt: BaseException = field(default_factory=KeyboardInterrupt)
    failing: frozenset[str] = frozenset()
    profile = DEVICE
    measured: list[Program] = field(default_factory=list)

    def sample(self, task, count, seed):
        order = np.random.default_rng(seed).permutation(self.programs)[:count]
        return [self._program(task, int(number)) for number in order]

    def vary(self, task, parents, count, seed):
        numbers = [quality(Program(task, parent)) for parent in parents]
        near = {(number + d) % self.programs for number in numbers for d in (-1, 1)}
        return [self._program(task, number) for number in sorted(near)[:count]]

    def apply(self, task, traces):
        return [self._program(task, quality(Program(task, trace))) for trace in traces]

    def for_each(self, function, items):
        return [function(item) for item in items]

    def measure_each(self, programs, incumbent_s=None):
        for program in programs:
            if self.interrupt_after is not None and len(self.measured) >= self.interrupt_after:
                raise self.interrupt
            self.measured.append(program)
            failed = program.task.hash in self.failing
            latency_s = 1e-6 * (1 + abs(quality(program) - 7))
            yield Measurement(
                program, "a", () if failed else (latency_s,), "run" if failed else None, 1.0, "x"
            )

    def _program(self, task, number):
        stores_ = np.zeros((1, 164), np.float32)
        stores_[0, 16] = np.log2(1 + number)  # as features are
        return Program(task, f'[[["Number",[],[{number}],[]]],[]]', stores_)


class KnowsBest:
    """A cost model that is right."""

    fine_tuned = 0
    trace_ranker = valid_pca = chance_error = None

    def predict(self, batch, support=None):
        raise AssertionError("replaced in the test")

    def fine_tune(self, records):
        self.fine_tuned += 1
        return self

    def learn_unapplied_traces(self, train, valid):
        pass


@pytest.fixture
def journal(tmp_path) -> RecordStore:
    return RecordStore.create(tmp_path / "journal")


def run(device, journal, trials, seconds=60.0, tasks=TASKS, **others):
    budget = Budget(seconds, 0, trials)
    return tune(tasks, measurer=device, journal=journal, budget=budget, **others)


class TestLoop:
    def test_every_task_gets_its_floor_largest_share_first(self, journal):
        device = FakeDevice()
        tuned = run(device, journal, trials=3 * BATCH)
        order = [p.task.hash[-1] for p in device.measured[::BATCH]]
        assert order == ["1", "2", "0"]
        assert Counter(p.task.hash[-1] for p in device.measured) == dict.fromkeys("012", BATCH)
        assert len(tuned.best) == 3

    @pytest.mark.parametrize("trials", [1, BATCH - 1, 30])
    def test_the_budget_of_trials_is_kept_to(self, journal, trials):
        device = FakeDevice()
        tuned = run(device, journal, trials)
        assert len(device.measured) == tuned.trials == trials == journal.read().num_rows
        assert tuned.ended == "budget"

    def test_the_budget_of_seconds_is_kept_to(self, journal):
        device = FakeDevice()
        tuned = run(device, journal, 1000, seconds=-1.0)
        assert (tuned.trials, tuned.ended) == (0, "budget")
        assert device.measured == []

    def test_nothing_is_measured_twice(self, journal):
        device = FakeDevice()
        run(device, journal, trials=150)
        assert len({p.key for p in device.measured}) == 150

    def test_a_small_space_ends_before_the_budget(self, journal):
        tuned = run(FakeDevice(programs=10), journal, trials=1000)
        assert (tuned.trials, tuned.ended) == (30, "exhausted")
        assert [m.latency_s for m in tuned.best.values()] == pytest.approx([1e-6] * len(TASKS))

    def test_a_journal_is_gone_on_from(self, journal):
        run(FakeDevice(), journal, trials=30)
        second = FakeDevice()
        tuned = run(second, journal, trials=50)
        assert (tuned.resumed, tuned.trials) == (30, 20)
        assert len(set(journal.read(["program"])["program"].to_pylist())) == 50
        third = FakeDevice()
        again = run(third, journal, trials=50)
        assert (again.resumed, again.trials, third.measured) == (50, 0, [])
        assert again.best == tuned.best

    def test_the_seconds_of_an_interrupted_run_count(self, journal):
        first = run(FakeDevice(interrupt_after=3), journal, trials=30)
        ((what, seconds),) = json.loads((journal.path / SPENT).read_text())["seconds"].items()
        assert 0 < seconds <= first.seconds
        save_spent_s(journal.path, what, 50.0)
        assert run(FakeDevice(), journal, trials=50, seconds=49.0).trials == 0
        again = run(FakeDevice(), journal, trials=50, seconds=60.0)
        assert 50 == again.earlier_s <= again.seconds < 60
        others = run(FakeDevice(), journal, trials=50, seconds=49.0, tasks=TASKS[1:])
        assert others.seconds < 49

    def test_records_of_other_tasks_do_not_use_the_budget_up(self, journal):
        run(FakeDevice(), journal, trials=20, tasks=TASKS[:1])
        tuned = run(FakeDevice(), journal, trials=20, tasks=TASKS[1:])
        assert (tuned.resumed, tuned.trials) == (0, 20)

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), DeviceLost("it", "a server", "wait")])
    @pytest.mark.parametrize("after", [0, 3, BATCH + 3])
    def test_an_interrupt_keeps_what_was_measured_and_the_best(self, journal, after, error):
        device = FakeDevice(interrupt_after=after, interrupt=error)
        tuned = run(device, journal, trials=100)
        by_user = isinstance(error, KeyboardInterrupt)
        assert tuned.ended == ("interrupted" if by_user else "device_lost")
        assert tuned.is_partial
        assert tuned.trials == after == journal.read().num_rows
        fastest: dict[str, int] = {}
        for program in device.measured:
            distance = abs(quality(program) - 7)
            fastest[program.task.hash] = min(distance, fastest.get(program.task.hash, 99))
        assert {h: round(m.latency_s * 1e6) - 1 for h, m in tuned.best.items()} == fastest

    def test_a_task_of_which_nothing_runs_leaves_room_for_the_others(self, journal):
        device = FakeDevice(programs=5000, failing=frozenset({TASKS[1][0].hash}))
        tuned = run(device, journal, trials=200)
        counts = Counter(p.task.hash[-1] for p in device.measured)
        assert tuned.failed == counts["1"]
        assert TASKS[1][0].hash not in tuned.best
        assert min(counts["0"], counts["2"]) > BATCH

    def test_a_way_that_is_far_behind_its_alternatives_is_not_pursued(self, journal):
        """Both compute the same; the second needs twice the time whatever is tried."""
        fast, slow = TASKS[1][0], TASKS[2][0]

        class TwoWays(FakeDevice):
            def measure_each(self, programs, incumbent_s=None):
                for found in super().measure_each(programs, incumbent_s):
                    factor = 2.0 if found.program.task == slow else 1.0
                    latencies = tuple(factor * s + factor * 1e-5 for s in found.latencies_s)
                    yield replace(found, latencies_s=latencies)

        device = TwoWays()
        ways = {fast.hash: ("conv", None), slow.hash: ("conv", 2)}
        options = TuningOptions(scheduler=SchedulerConfig(alternative_trials=24))
        run(device, journal, trials=150, alternatives=ways, options=options)
        trials = Counter(p.task.hash for p in device.measured)
        assert trials[slow.hash] == 24
        assert trials[fast.hash] > 48

    def test_a_task_without_a_design_space_leaves_the_others(self, journal):
        class Refusing(FakeDevice):
            def sample(self, task, count, seed):
                if task == TASKS[1][0]:
                    raise WorkFailed("a task", "a design space", "leave it out")
                return super().sample(task, count, seed)

        tuned = run(Refusing(), journal, trials=40)
        assert set(tuned.best) == {TASKS[0][0].hash, TASKS[2][0].hash}

    def test_what_never_ran_is_left_to_the_model(self, journal, monkeypatch):
        monkeypatch.setattr("hetfeat.tune.guidance.batch_of", lambda programs, profile: programs)
        direct, other_way = TASKS[1][0], TASKS[2][0]
        ways = {direct.hash: ("conv", None), other_way.hash: ("conv", 2)}
        device = FakeDevice()
        model = KnowsBest()
        model.predict = lambda batch, support=None: TestEvolution.right(batch)
        tuned = run(device, journal, 0, model=model, alternatives=ways)
        assert device.measured == [] and tuned.best == {} and tuned.trials == 0
        assert {h: quality(p) for h, p in tuned.picked.items()} == {
            TASKS[0][0].hash: 7,
            direct.hash: 7,
        }

    @pytest.mark.parametrize(
        ("flops", "channels", "seconds"),
        [(1e6, 1, 1e-3), (9e6, 1, 9e-3), (1e6, 40_000_000, 8e-3)],
        ids=["few", "many", "few, large weights"],
    )
    def test_the_library_and_weights_say_which_way_is_taken_of_what_never_ran(
        self, journal, monkeypatch, flops, channels, seconds
    ):
        monkeypatch.setattr("hetfeat.tune.guidance.batch_of", lambda programs, profile: programs)
        direct = TASKS[1][0]
        other_way = replace(direct, hash="other way", operator="winograd", flops=flops)
        data, _, *others = direct.shapes
        other_way = replace(other_way, shapes=(data, (1, channels), *others))
        ways = {direct.hash: ("conv", None), other_way.hash: ("conv", 2)}
        (number,) = FakeDevice().sample(direct, 1, 0)
        library = ScheduleLibrary(
            Donor(replace(task, hash=f"like {task.hash}", flops=1.0), "a", number.trace, 1e-9)
            for task in (direct, other_way)
        )
        model = KnowsBest()
        model.predict = lambda batch, support=None: TestEvolution.right(batch)
        tasks = [(direct, 2), (other_way, 2)]
        others = {"model": model, "alternatives": ways, "library": library}
        tuned = run(FakeDevice(), journal, 0, tasks=tasks, **others)
        assert tuned.expected_s == pytest.approx({direct.hash: 4e-3, "other way": seconds})
        assert set(tuned.picked) == {"other way" if seconds < 4e-3 else direct.hash}

    def test_a_way_that_ran_is_taken_whatever_the_library_expects(self, journal, monkeypatch):
        monkeypatch.setattr("hetfeat.tune.guidance.batch_of", lambda programs, profile: programs)
        direct = TASKS[1][0]
        other_way = replace(direct, hash="other way", operator="winograd", flops=1.0)
        ways = {direct.hash: ("conv", None), other_way.hash: ("conv", 2)}
        run(FakeDevice(), journal, trials=4, tasks=[(direct, 1)])
        model = KnowsBest()
        model.predict = lambda batch, support=None: TestEvolution.right(batch)
        library = ScheduleLibrary([Donor(other_way, "a", "[[],[]]", 1e-9)])
        tasks = [(direct, 1), (other_way, 1)]
        others = {"model": model, "alternatives": ways, "library": library}
        tuned = run(FakeDevice(), journal, 0, tasks=tasks, **others)
        assert set(tuned.best) == {direct.hash}
        assert tuned.expected_s == tuned.picked == {}

    @pytest.mark.parametrize("trials", [0, BATCH])
    def test_a_model_that_knows_nothing_is_asked_only_where_nothing_is_measured(
        self, journal, monkeypatch, trials
    ):
        monkeypatch.setattr("hetfeat.tune.guidance.batch_of", lambda programs, profile: programs)
        model, asked = KnowsBest(), []
        model.valid_pca, model.chance_error = 0.5, 0.01
        model.predict = lambda batch, support=None: asked.append(1) or TestEvolution.right(batch)
        run(FakeDevice(), journal, trials, model=model)
        assert bool(asked) is (trials == 0)

    @pytest.mark.parametrize("given", [False, True], ids=["picked here", "picked before"])
    def test_what_the_model_picks_is_measured_before_anything_else(
        self, journal, monkeypatch, given
    ):
        """One program of each task, the largest first, and of several ways the expected one."""
        monkeypatch.setattr("hetfeat.tune.guidance.batch_of", lambda programs, profile: programs)
        direct, other_way = TASKS[1][0], TASKS[2][0]
        ways = {direct.hash: ("conv", None), other_way.hash: ("conv", 2)}
        model = KnowsBest()
        model.predict = lambda batch, support=None: TestEvolution.right(batch)
        device = FakeDevice()
        known = {task.hash: device.sample(task, 1, 0)[0] for task in (TASKS[0][0], direct)}
        picked = known if given else None
        tuned = run(device, journal, 20, model=model, alternatives=ways, picked=picked)
        assert [p.task for p in device.measured[:2]] == [direct, TASKS[0][0]]
        if given:
            assert device.measured[:2] == [known[direct.hash], known[TASKS[0][0].hash]]
        else:
            assert [quality(program) for program in device.measured[:2]] == [7, 7]
        assert (tuned.trials, tuned.picked, tuned.expected_s) == (20, {}, {})

    def test_nothing_is_picked_for_a_way_whose_alternative_ran(self, journal, monkeypatch):
        monkeypatch.setattr("hetfeat.tune.guidance.batch_of", lambda programs, profile: programs)
        direct, other_way = TASKS[1][0], TASKS[2][0]
        ways = {direct.hash: ("conv", None), other_way.hash: ("conv", 2)}
        model = KnowsBest()
        model.predict = lambda batch, support=None: TestEvolution.right(batch)
        picked = {other_way.hash: FakeDevice().sample(other_way, 1, 0)[0]}
        others = {"model": model, "alternatives": ways, "picked": picked}
        tuned = run(FakeDevice(), journal, 1, tasks=TASKS[1:], **others)
        assert set(tuned.best) == {other_way.hash}
        assert tuned.picked == {}

    def test_picks_are_not_measured_once_more_when_it_goes_on(self, journal):
        picked = {task.hash: FakeDevice().sample(task, 1, 0)[0] for task, _ in TASKS}
        first = run(FakeDevice(), journal, 2, picked=picked)
        assert first.trials == 2
        device = FakeDevice()
        assert run(device, journal, 20, picked=picked).trials == 18
        assert len({*journal.read(["program"])["program"].to_pylist()}) == 20

    def test_another_way_of_what_ran_waits_for_its_turn(self, journal):
        """It is not needed: tasks that save more come first."""
        slow, fast, other_way = TASKS[1][0], TASKS[0][0], TASKS[2][0]
        ways = {fast.hash: ("conv", None), other_way.hash: ("conv", 2)}
        picked = {task.hash: FakeDevice().sample(task, 1, 0)[0] for task in (slow, fast)}
        device = FakeDevice()
        run(device, journal, 100, alternatives=ways, picked=picked)
        order = [program.task for program in device.measured[2:]]
        assert order.index(slow) < order.index(fast) < order.index(other_way)

    def test_without_a_model_nothing_is_picked(self, journal):
        assert run(FakeDevice(), journal, trials=0).picked == {}

    def test_it_ends_where_no_gain_is_expected(self, journal):
        """All programs of a task take the same time."""

        class Level(FakeDevice):
            def measure_each(self, programs, incumbent_s=None):
                for found in super().measure_each(programs, incumbent_s):
                    yield replace(found, latencies_s=(1e-3,))

        tuned = run(Level(programs=5000), journal, trials=5000)
        config = SchedulerConfig()
        share = config.least_gain * sum(weight for _, weight in TASKS) / max(w for _, w in TASKS)
        rounds = math.log(share / config.first_gain) / math.log(config.gain_memory)
        assert BATCH * rounds < tuned.trials < BATCH * len(TASKS) * (rounds + 2)
        assert tuned.ended == "exhausted"

    def test_a_result_is_not_changed(self, journal):
        tuned = run(FakeDevice(), journal, trials=1)
        with pytest.raises(FrozenInstanceError):
            tuned.trials = 2

    def test_rounds_are_told(self, journal):
        told = []
        run(FakeDevice(), journal, 20, on_round=lambda tuned, state: told.append(tuned.trials))
        assert told == [8, 16, 20]


class TestEvolution:
    def search(self, score=None, seed=0, device=None, rank=None, config=CONFIG, **explored):
        guidance = FixedGuidance(score, rank, Exploration(**explored))
        device = device or FakeDevice()
        return Evolution(TASKS[0][0], device, seed, guidance=guidance, config=config)

    @staticmethod
    def right_of(program):
        return 1.0 / (1 + abs(quality(program) - 7))

    @classmethod
    def right(cls, programs):
        return np.array([cls.right_of(program) for program in programs])

    def test_without_a_model_no_more_is_proposed_at_first_than_is_measured(self):
        wanted = []

        class Counting(FakeDevice):
            def sample(self, task, count, seed):
                wanted.append(count)
                return super().sample(task, count, seed)

        assert len(self.search(device=Counting()).ask(8)) == 8
        assert wanted == [8]

    @pytest.mark.parametrize("numbers", [range(80, 88), range(4, 11)], ids=["slow", "fast"])
    @pytest.mark.parametrize("model", ["judges them", "does not", None])
    def test_what_is_given_to_begin_with_is_taken_or_judged(self, model, numbers):
        device = FakeDevice()
        drawn = device.sample(TASKS[0][0], 100, 0)
        starts = [program for program in drawn if quality(program) in numbers]
        explored = Exploration(score_warm_starts=model != "does not")
        guidance = FixedGuidance(self.right if model else None, exploration=explored)
        search = Evolution(TASKS[0][0], device, 0, guidance=guidance, warm_starts=lambda _: starts)
        found = {program.key for program in search.ask(BATCH)}
        taken = sum(program.key in found for program in starts)
        fast = 7 in numbers
        assert len(found) == BATCH
        if model == "judges them":
            assert taken > BATCH // 2 if fast else taken <= round(CONFIG.random_share * BATCH)
        else:
            assert {
                program.key for program in starts[: round(CONFIG.warm_start_share * BATCH)]
            } <= found
        again = {program.key for program in search.ask(BATCH)}
        assert not again & found

    def test_picks_what_the_model_says(self):
        seen = set()

        def score(programs):
            seen.update(programs)
            return self.right(programs)

        chosen = self.search(score).ask(BATCH)
        best = sorted(self.right(seen), reverse=True)
        trusted = BATCH - round(CONFIG.random_share * BATCH)
        found = sorted(self.right(chosen), reverse=True)
        assert found[:trusted] == best[:trusted]

    def test_each_generation_varies_the_model_s_favourites(self):
        judged, parents = [], []

        class Noting(FakeDevice):
            def vary(self, task, given, count, seed):
                parents.append(given)
                return super().vary(task, given, count, seed)

        def score(programs):
            judged.append(sorted(programs, key=lambda p: abs(quality(p) - 7)))
            return self.right(programs)

        config = EvolutionConfig(generations=(4, 1), parents=5)
        self.search(score, device=Noting(programs=5000), config=config).ask(BATCH)
        assert len(parents) == 4
        for favourites, given in zip(judged, parents, strict=False):
            assert {p.trace for p in favourites[:5]} == set(given)
        assert quality(judged[1][0]) != quality(judged[0][0])

    def test_a_wrong_model_is_doubted_a_little(self):
        judged = set()

        def score(programs):
            judged.update(programs)
            return -self.right(programs)

        chosen = set(self.search(score, device=FakeDevice(programs=5000)).ask(BATCH))
        favourites = set(sorted(judged, key=self.right_of)[:BATCH])
        assert len(chosen - favourites) >= round(CONFIG.random_share * BATCH)

    @pytest.mark.parametrize("in_turns", [True, False])
    def test_a_model_that_knows_no_sketch_of_ours_does_not_keep_them_out(self, in_turns):
        class OddAreOurs(FakeDevice):
            def _program(self, task, number):
                made = super()._program(task, number)
                return replace(made, trace=made.trace.replace("Number", KINDS[number % 2]))

            def sample(self, task, count, seed):
                """The sketches take turns."""
                drawn = enumerate(map(quality, super().sample(task, count, seed)))
                return [self._program(task, number - number % 2 + at % 2) for at, number in drawn]

            def vary(self, task, parents, count, seed):
                """A variation is of its parent's sketch."""
                numbers = [quality(Program(task, parent)) for parent in parents]
                near = {(number + d) % self.programs for number in numbers for d in (-2, 2)}
                return [self._program(task, number) for number in sorted(near)[:count]]

        def even(programs):
            return np.array([-float(is_custom_sketch(program.trace)) for program in programs])

        device = OddAreOurs(programs=5000)
        search = self.search(even, device=device, reserve_custom_sketches=in_turns)
        for _ in range(2):
            chosen = search.ask(BATCH)
            ours = sum(is_custom_sketch(program.trace) for program in chosen)
            assert len(set(chosen)) == BATCH
            assert ours == BATCH // 2 if in_turns else ours <= 1
            search.tell([stores.measured(program, DEVICE) for program in chosen])

    def test_where_there_are_none_of_ours_the_model_has_all_picks(self):
        class Counting(FakeDevice):
            drawn = 0

            def sample(self, task, count, seed):
                self.drawn += count
                return super().sample(task, count, seed)

        device, usual = Counting(), Counting()
        search = self.search(self.right, device=device, reserve_custom_sketches=True)
        other = self.search(self.right, device=usual)
        for _ in range(3):
            other.ask(BATCH)
            assert len(set(search.ask(BATCH))) == BATCH
        assert device.drawn == usual.drawn + CONFIG.sketch_samples

    def test_the_same_seed_asks_alike(self):
        one, same, other = (self.search(self.right, seed).ask(BATCH) for seed in (1, 1, 2))
        assert one == same != other

    def test_never_asks_twice_nor_for_what_it_was_told(self):
        search, device = self.search(), FakeDevice()
        told = list(device.measure_each(device.sample(TASKS[0][0], 20, 9)))
        search.tell(told)
        asked = []
        while found := search.ask(BATCH):
            asked += found
            search.tell(list(device.measure_each(found)))
        keys = [p.key for p in asked]
        assert len(keys) == len(set(keys)) == 80
        assert not set(keys) & {m.program.key for m in told}

    def test_unapplied_traces_take_the_place_of_variations(self, monkeypatch):
        asked = []

        class NeverVaries(FakeDevice):
            def vary(self, task, parents, count, seed):
                raise AssertionError("varied")

        device = NeverVaries(programs=5000)

        def mutate(parents, rank, count, rng, config, unit):
            asked.append((list(parents), count))
            return [p.trace for p in device.sample(TASKS[0][0], count, rng.randrange(99))]

        monkeypatch.setattr("hetfeat.search.evolution.mutate_traces", mutate)
        config = EvolutionConfig(applied_per_pick=3, sketch_samples=5)
        search = self.search(self.right, device=device, rank=len, config=config)
        chosen = search.ask(BATCH)
        search.tell(list(device.measure_each(chosen)))
        search.ask(BATCH)
        (first, count), (second, _) = asked
        assert len(first) == 5 and count == 3 * BATCH
        fastest = sorted(chosen, key=self.right_of, reverse=True)[: CONFIG.parents]
        assert second[: CONFIG.parents] == [program.trace for program in fastest]

    def test_unapplied_traces_that_lead_nowhere_are_made_up_for(self, monkeypatch):
        monkeypatch.setattr("hetfeat.search.evolution.mutate_traces", lambda *_: [])
        search = self.search(self.right, rank=len)
        asked = []
        while found := search.ask(BATCH):
            asked += found
        assert len({program.key for program in asked}) == len(asked) > 90

    @pytest.mark.parametrize(
        "ask", [lambda search: search.ask(BATCH), lambda search: search.pick()]
    )
    def test_sketches_are_drawn_once_for_all_who_look_at_them(self, monkeypatch, ask):
        """Warm starts learn the extents of a task from them."""
        monkeypatch.setattr("hetfeat.search.evolution.mutate_traces", lambda *_: [])
        drawn = []

        class Noting(FakeDevice):
            def sample(self, task, count, seed):
                drawn.append(count)
                return super().sample(task, count, seed)

        ask(
            Evolution(
                TASKS[0][0],
                Noting(),
                0,
                guidance=FixedGuidance(self.right, rank_traces=len),
                warm_starts=lambda show: show(),
                config=EvolutionConfig(sketch_samples=5),
            )
        )
        assert drawn.count(5) == 1

    def test_traces_are_applied_while_that_brings_better_ones(self, monkeypatch):
        """Ranked as they are numbered, where nothing is measured."""
        applied = []

        class Applying(FakeDevice):
            def sample(self, task, count, seed):
                return [self._program(task, 99)]

            def apply(self, task, traces):
                applied.append(len(traces))
                return super().apply(task, traces)

        device = Applying()
        ranked = [*range(50, 9, -1), *range(60, 90)]
        traces = [device._program(TASKS[0][0], number).trace for number in ranked]
        monkeypatch.setattr("hetfeat.search.evolution.mutate_traces", lambda *_: traces)
        config = EvolutionConfig(unmeasured_applied=16)
        picked = self.search(self.right, device=device, rank=len, config=config).pick()
        assert quality(picked) == 10
        assert applied == [16, 16, 16, 16]

    def test_failures_are_no_parents(self):
        parents = []

        class Noting(FakeDevice):
            def vary(self, task, given, count, seed):
                parents.append(given)
                return []

        device = Noting(failing=frozenset({TASKS[0][0].hash}))
        search = self.search(device=device)
        search.tell(list(device.measure_each(device.sample(TASKS[0][0], 5, 0))))
        search.ask(BATCH)
        assert parents == []


def test_the_model_chooses_and_is_refitted(journal, monkeypatch):
    """Against a search at random, on the same budget and seed."""
    model = KnowsBest()
    monkeypatch.setattr("hetfeat.tune.guidance.batch_of", lambda programs, profile: list(programs))
    monkeypatch.setattr("hetfeat.tune.guidance.examples_of", lambda known, profile: known)
    monkeypatch.setattr("hetfeat.tune.guidance.ModelGuidance._gate", lambda *_: None)
    monkeypatch.setattr("hetfeat.tune.guidance.ModelGuidance._split", lambda *_: ((), ()))
    model.predict = lambda batch, support=None: TestEvolution.right(batch)
    device = FakeDevice(programs=100)
    tuned = run(device, journal, 72, model=model)
    first = [abs(quality(p) - 7) for p in device.measured[:BATCH]]
    assert sorted(first)[BATCH - 2] < 15
    assert [m.latency_s for m in tuned.best.values()] == pytest.approx([1e-6] * len(TASKS))
    assert model.fine_tuned == 1


def test_without_a_source_the_tuner_learns_meanwhile(journal, monkeypatch):
    """From the records of each refit, not only from what a journal held to begin with."""
    learnt = []
    monkeypatch.setattr(
        "hetfeat.tune.guidance.ModelGuidance._fit_from_scratch",
        lambda self, records: learnt.append(len(records)),
    )
    options = TuningOptions(guidance=GuidanceConfig(refit_every=48))
    run(FakeDevice(), journal, trials=150, options=options)
    assert learnt == [96, 144]
