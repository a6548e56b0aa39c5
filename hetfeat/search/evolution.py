"""Evolution guided by a cost model: vary the best, rank many, measure few."""

import heapq
import random
from collections.abc import Callable, Sequence

from hetfeat.records import Measurement, Program, Task
from hetfeat.schedules.trace import is_ours
from hetfeat.search.base import Proposer, Score

Draft = Callable[[Sequence[str], int, random.Random], list[Program]]
"""Up to so many programs, with features, bred from traces without applying most of them."""

POOL_PER_PICK = 6
"""Candidates of a generation for each one measured."""
PARENTS = 6
VARIED_SHARE = 0.75
"""Share of the pool that varies measured programs, once there are any."""
START_SHARE = 0.75
"""Share of the first picks that is taken from what is given to begin with."""
CURIOUS_SHARE = 0.125
"""Share of the picks taken at random from the pool: a wrong model must be able to notice."""
APPLIED_PER_PICK = 4
"""Drafts applied, and judged with their features, for each program measured."""
SKETCH_SAMPLES = 8
"""Random programs that show the sketches of a task."""
GENERATIONS = (3, 1)
"""Generations that the model judges alone before the first programs are measured, and before
later ones (`benchmarks/generations.py`)."""
UNMEASURED_SIZE, UNMEASURED_GENERATIONS = 64, 3
"""Candidates of a generation, and generations, where nothing will be measured at all."""


class Evolution:
    """A `Search` over one task's design space.

    Args:
        task: The task.
        proposer: Where candidates come from.
        score: The cost model's judgement; None picks at random.
        seed: Seed of every draw.
        starts: Gives programs to begin with, best first, when the first candidates are asked for.
        draft: Gives programs bred from traces; without it the proposer varies programs, and
            applies each variation.

    Attributes:
        in_turns: Half of the picks are of sketches of ours, whatever the model says, which has
            learnt of none.
        judges_starts: The model judges what is given to begin with like anything else.
    """

    def __init__(
        self,
        task: Task,
        proposer: Proposer,
        score: Score | None,
        seed: int,
        starts: Callable[[], Sequence[Program]] = tuple,
        draft: Draft | None = None,
    ) -> None:
        self._task = task
        self._proposer = proposer
        self.score, self.draft = score, draft
        self.in_turns = self.judges_starts = False
        self._sketches: list[Program] = []
        self._rng = random.Random(f"{seed} {task.hash}")
        self._starts = starts
        self._latency_s: dict[str, float] = {}
        self._seen: set[str] = set()

    def ask(self, count: int) -> list[Program]:
        """See `Search.ask`."""
        begun = bool(self._seen)
        strangers = self._strangers(count // 2) if self.in_turns else []
        count -= len(strangers)
        starts = [] if begun else list(self._starts())
        judged = starts if self.judges_starts and self.score else []
        first = [] if judged else starts[: round(START_SHARE * count)]
        self._seen.update(program.key for program in first)
        if self.draft:
            bred = self._drafted(APPLIED_PER_PICK * count, judged or first)
        else:
            # At first, and without a model, any program will do.
            wide = POOL_PER_PICK if begun or self.score else 1
            bred = self._evolved(wide * count, GENERATIONS[begun], judged or first)
        pool: dict[str, Program] = {}
        self._add(pool, [*judged, *bred])
        chosen = [*first, *strangers, *self._choose(list(pool.values()), count - len(first))]
        self._seen.update(program.key for program in chosen)
        return chosen

    def pick(self) -> Program | None:
        """The program that the model likes best after generations that nobody measures.

        None where there is no model, or the design space is empty.
        """
        if self.score is None:
            return None
        starts = self._starts()
        if self.draft:
            bred = self._drafted(UNMEASURED_SIZE, starts)
        else:
            bred = self._evolved(UNMEASURED_SIZE, UNMEASURED_GENERATIONS, starts)
        found = [*starts, *bred]
        return next(iter(self._ranked(found, self.score)), None)

    def tell(self, measurements: Sequence[Measurement]) -> None:
        """See `Search.tell`."""
        for measurement in measurements:
            self._seen.add(measurement.program.key)
            if measurement.latency_s is not None:
                self._latency_s[measurement.program.trace] = measurement.latency_s

    def _evolved(self, size: int, generations: int, parents: Sequence[Program]) -> list[Program]:
        """Programs not seen before: random ones, and variations of the best, measured or not.

        Each generation varies what the model likes best of all before it, `parents` included.
        """
        pool: dict[str, Program] = {}
        if self._latency_s:
            varied = round(VARIED_SHARE * size)
            self._add(pool, self._proposer.vary(self._task, self._fastest(), varied, self._draw()))
        self._add(pool, self._proposer.sample(self._task, size - len(pool), self._draw()))
        if self.score is None:
            return list(pool.values())
        for _ in range(generations):
            ranked = self._ranked([*parents, *pool.values()], self.score)
            best = [program.trace for program in ranked[:PARENTS]]
            if best:
                self._add(pool, self._proposer.vary(self._task, best, size, self._draw()))
        return list(pool.values())

    def _drafted(self, size: int, parents: Sequence[Program]) -> list[Program]:
        """Programs not seen before: the best of drafts of the fastest, and some random ones."""
        assert self.draft is not None
        shown = self._shown()
        known = [*self._fastest(), *(program.trace for program in (*parents, *shown))]
        pool: dict[str, Program] = {}
        self._add(pool, shown)
        if known:
            self._add(pool, self.draft(list(dict.fromkeys(known)), size, self._rng))
        if len(pool) < size // 2:  # a small design space, or one where drafts do not apply
            missing = size - len(pool)
            self._add(pool, self._proposer.sample(self._task, missing, self._draw()))
        return list(pool.values())

    def _shown(self) -> list[Program]:
        """A few random programs, among them one of each sketch."""
        if not self._sketches:
            self._sketches = self._proposer.sample(self._task, SKETCH_SAMPLES, self._draw())
        return self._sketches

    def _strangers(self, count: int) -> list[Program]:
        """Programs of our sketches: random ones, and variations of the fastest of them."""
        if not any(is_ours(program.trace) for program in self._shown()):
            return []
        size = POOL_PER_PICK * count
        pool: dict[str, Program] = {}
        if ours := [trace for trace in self._fastest(len(self._latency_s)) if is_ours(trace)]:
            best = ours[:PARENTS]
            self._add(pool, self._proposer.vary(self._task, best, size // 2, self._draw()))
        self._add(pool, self._proposer.sample(self._task, size - len(pool), self._draw()))
        chosen = self._choose([p for p in pool.values() if is_ours(p.trace)], count)
        self._seen.update(program.key for program in chosen)
        return chosen

    def _fastest(self, count: int = PARENTS) -> list[str]:
        """Traces of the fastest programs measured, fastest first."""
        return heapq.nsmallest(count, self._latency_s, key=self._latency_s.__getitem__)

    @staticmethod
    def _ranked(programs: list[Program], score: Score) -> list[Program]:
        """The programs, the model's favourite first."""
        if not programs:
            return []
        scores = score(programs)
        return [programs[i] for i in sorted(range(len(programs)), key=lambda i: -scores[i])]

    def _choose(self, pool: list[Program], count: int) -> list[Program]:
        self._rng.shuffle(pool)
        if self.score is None or len(pool) <= count:
            return pool[:count]
        curious = round(CURIOUS_SHARE * count)
        ranked = self._ranked(pool, self.score)
        best, rest = ranked[: count - curious], ranked[count - curious :]
        return best + self._rng.sample(rest, curious)

    def _add(self, pool: dict[str, Program], found: Sequence[Program]) -> None:
        pool.update((p.key, p) for p in found if p.key not in self._seen)

    def _draw(self) -> int:
        return self._rng.randrange(2**20)
