"""Evolution guided by a cost model: vary the best, rank many, measure few."""

import random
from collections.abc import Callable, Sequence

from hetfeat.records import Measurement, Program, Task
from hetfeat.search.base import Proposer, Score

POOL_PER_PICK = 6
"""Candidates drawn and scored for each one measured."""
PARENTS = 6
VARIED_SHARE = 0.75
"""Share of the pool that varies measured programs, once there are any."""
START_SHARE = 0.75
"""Share of the first picks that is taken from what is given to begin with."""
CURIOUS_SHARE = 0.125
"""Share of the picks taken at random from the pool: a wrong model must be able to notice."""
DREAM_SIZE, DREAM_ROUNDS = 64, 3
"""Candidates of a generation, and generations, where nothing is measured between them."""


class Evolution:
    """A `Search` over one task's design space.

    Args:
        task: The task.
        proposer: Where candidates come from.
        score: The cost model's judgement; None picks at random.
        seed: Seed of every draw.
        starts: Gives programs to begin with, best first, when the first candidates are asked for.
    """

    def __init__(
        self,
        task: Task,
        proposer: Proposer,
        score: Score | None,
        seed: int,
        starts: Callable[[], Sequence[Program]] = tuple,
    ) -> None:
        self._task = task
        self._proposer = proposer
        self.score = score
        self._rng = random.Random(f"{seed} {task.hash}")
        self._starts = starts
        self._latency_s: dict[str, float] = {}
        self._seen: set[str] = set()

    def ask(self, count: int) -> list[Program]:
        """See `Search.ask`."""
        size = POOL_PER_PICK * count
        first = () if self._seen else self._starts()[: round(START_SHARE * count)]
        self._seen.update(program.key for program in first)
        pool: dict[str, Program] = {}
        if self._latency_s:
            parents = sorted(self._latency_s, key=self._latency_s.__getitem__)[:PARENTS]
            varied = round(VARIED_SHARE * size)
            self._add(pool, self._proposer.vary(self._task, parents, varied, self._draw()))
        self._add(pool, self._proposer.sample(self._task, size - len(pool), self._draw()))
        chosen = [*first, *self._choose(list(pool.values()), count - len(first))]
        self._seen.update(program.key for program in chosen)
        return chosen

    def tell(self, measurements: Sequence[Measurement]) -> None:
        """See `Search.tell`."""
        for measurement in measurements:
            self._seen.add(measurement.program.key)
            if measurement.latency_s is not None:
                self._latency_s[measurement.program.trace] = measurement.latency_s

    def pick(self) -> Program | None:
        """The program that the model likes best after generations that nobody measures.

        None where there is no model, or the design space is empty.
        """
        if self.score is None:
            return None
        pool: dict[str, Program] = {}
        self._add(pool, self._starts())
        self._add(pool, self._proposer.sample(self._task, DREAM_SIZE, self._draw()))
        for _ in range(DREAM_ROUNDS):
            parents = [program.trace for program in self._ranked(pool)[:PARENTS]]
            if not parents:
                return None
            self._add(pool, self._proposer.vary(self._task, parents, DREAM_SIZE, self._draw()))
        return self._ranked(pool)[0]

    def _ranked(self, pool: dict[str, Program]) -> list[Program]:
        """The pool, best first by the model."""
        programs = list(pool.values())
        if self.score is None or not programs:
            return programs
        scores = self.score(programs)
        return [programs[i] for i in sorted(range(len(programs)), key=lambda i: -scores[i])]

    def _choose(self, pool: list[Program], count: int) -> list[Program]:
        self._rng.shuffle(pool)
        if self.score is None or len(pool) <= count:
            return pool[:count]
        curious = round(CURIOUS_SHARE * count)
        scores = self.score(pool)
        ranked = sorted(range(len(pool)), key=lambda i: -scores[i])
        best, rest = ranked[: count - curious], ranked[count - curious :]
        return [pool[i] for i in best + self._rng.sample(rest, curious)]

    def _add(self, pool: dict[str, Program], found: Sequence[Program]) -> None:
        pool.update((p.key, p) for p in found if p.key not in self._seen)

    def _draw(self) -> int:
        return self._rng.randrange(2**20)
