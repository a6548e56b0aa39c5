"""Evolution guided by a cost model: vary the best, rank many, measure few."""

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from hetfeat.records import Measurement, Program, Task
from hetfeat.schedules.registers import MANY_REGISTERS, VectorUnit
from hetfeat.schedules.trace import is_custom_sketch
from hetfeat.search.base import (
    UNGUIDED,
    Guidance,
    Proposer,
    RankTraces,
    Score,
    WarmStarts,
    no_warm_starts,
)
from hetfeat.search.trace_mutation import MutationConfig, mutate_traces


@dataclass(frozen=True)
class EvolutionConfig:
    """Settings of `Evolution`.

    Attributes:
        candidates_per_pick: Candidates of a generation for each program measured; 6 by default.
        parents: Fastest or best scored programs that are varied; 6 by default.
        varied_share: Share of a generation that varies measured programs, once there are any;
            0.75 by default.
        warm_start_share: Share of the first picks taken from the warm-start candidates, where they
            are not scored; 0.75 by default.
        random_share: Share of the picks drawn from the pool whatever the scores; 0.125 by default,
            one of eight: a wrong model must be able to notice.
        applied_per_pick: Unapplied traces that are applied, and scored with their features, for
            each program measured; 4 by default (`benchmarks/rounds.py`).
        sketch_samples: Random programs drawn to show the sketches of a task; 8 by default.
        generations: Generations scored before the first programs are measured, and before later
            ones; (3, 1) by default (`benchmarks/generations.py`).
        unmeasured_candidates: Candidates of a generation where nothing will be measured; 64 by
            default.
        unmeasured_applied: Unapplied traces, of as many as those candidates, that are applied at
            once there, until some bring none that is scored better; 16 by default
            (`benchmarks/choosing.py`).
        unmeasured_generations: Generations there; 3 by default.
        mutation: Settings of the mutation of unapplied traces; those of `MutationConfig` by
            default.
    """

    candidates_per_pick: int = 6
    parents: int = 6
    varied_share: float = 0.75
    warm_start_share: float = 0.75
    random_share: float = 0.125
    applied_per_pick: int = 4
    sketch_samples: int = 8
    generations: tuple[int, int] = (3, 1)
    unmeasured_candidates: int = 64
    unmeasured_applied: int = 16
    unmeasured_generations: int = 3
    mutation: MutationConfig = field(default_factory=MutationConfig)


class Evolution:
    """A `TaskSearch` over a task's design space, by what its guidance says at the time.

    Where the guidance ranks traces, candidates are the best of mutated traces that nobody has
    applied. Else the proposer varies programs, and applies each variation. Without scores any
    candidate will do.

    Args:
        task: Task whose programs are searched.
        proposer: Source of candidates.
        seed: Seed of every draw.
        guidance: Scores and ranks of candidates; by default none, and picks are random.
        warm_starts: Function that gives the warm-start candidates when the first candidates are
            asked for; by default there are none.
        unit: Vector registers of the device, which mutated traces must fit; by default as many as
            anybody wants.
        config: Sizes and shares; those of `EvolutionConfig` by default.
    """

    is_guided = True

    def __init__(
        self,
        task: Task,
        proposer: Proposer,
        seed: int,
        *,
        guidance: Guidance = UNGUIDED,
        warm_starts: WarmStarts = no_warm_starts,
        unit: VectorUnit = MANY_REGISTERS,
        config: EvolutionConfig = EvolutionConfig(),
    ) -> None:
        self._task, self._proposer = task, proposer
        self._guidance, self._config, self._unit = guidance, config, unit
        self._rng = random.Random(f"{seed} {task.hash}")
        self._warm_starts = warm_starts
        self._sketches: list[Program] = []
        self._latency_s: dict[str, float] = {}
        self._seen: set[str] = set()

    def ask(self, count: int) -> list[Program]:
        """See `Search.ask`."""
        config, score, exploration = self._config, self._guidance.score, self._guidance.exploration
        begun = len(self._seen) > 1  # the model's pick alone is no round
        custom = (
            self._choose_custom_sketches(count // 2, score)
            if exploration.reserve_custom_sketches
            else []
        )
        count -= len(custom)
        known = [] if begun else self._warm_starts(self._show_sketches)
        warm_starts = [program for program in known if program.key not in self._seen]
        scored = warm_starts if exploration.score_warm_starts and score else []
        first = [] if scored else warm_starts[: round(config.warm_start_share * count)]
        self._seen.update(program.key for program in first)
        if rank := self._guidance.rank_traces:
            candidates = self._mutate(config.applied_per_pick * count, scored or first, rank)
        else:
            # At first, and without a model, any program will do.
            wide = config.candidates_per_pick if begun or score else 1
            generations = config.generations[begun]
            candidates = self._evolve(wide * count, generations, scored or first, score)
        pool: dict[str, Program] = {}
        self._add(pool, [*scored, *candidates])
        best = self._choose(list(pool.values()), count - len(first), score)
        chosen = [*first, *custom, *best]
        self._seen.update(program.key for program in chosen)
        return chosen

    def pick(self) -> Program | None:
        """The best scored program after generations that nobody measures.

        None where there are no scores, or the design space is empty.
        """
        config, score = self._config, self._guidance.score
        if score is None:
            return None
        warm_starts = self._warm_starts(self._show_sketches)
        size = config.unmeasured_candidates
        if rank := self._guidance.rank_traces:
            candidates = self._apply_while_better(size, warm_starts, rank, score)
        else:
            candidates = self._evolve(size, config.unmeasured_generations, warm_starts, score)
        return next(iter(self._rank([*warm_starts, *candidates], score)), None)

    def tell(self, measurements: Sequence[Measurement]) -> None:
        """See `Search.tell`."""
        for measurement in measurements:
            self._seen.add(measurement.program.key)
            if measurement.latency_s is not None:
                self._latency_s[measurement.program.trace] = measurement.latency_s

    def _evolve(
        self, size: int, generations: int, parents: Sequence[Program], score: Score | None
    ) -> list[Program]:
        """Programs not seen before: random ones, and variations of the best, measured or not.

        Each generation varies what is scored best of all before it, `parents` included.
        """
        pool: dict[str, Program] = {}
        if self._latency_s:
            varied = round(self._config.varied_share * size)
            self._add(pool, self._vary(self._fastest(), varied))
        self._add(pool, self._sample(size - len(pool)))
        if score is None:
            return list(pool.values())
        for _ in range(generations):
            ranked = self._rank([*parents, *pool.values()], score)
            best = [program.trace for program in ranked[: self._config.parents]]
            if best:
                self._add(pool, self._vary(best, size))
        return list(pool.values())

    def _mutate(self, size: int, parents: Sequence[Program], rank: RankTraces) -> list[Program]:
        """Programs not seen before: the best of mutated traces, and some random ones."""
        pool: dict[str, Program] = {}
        self._add(pool, self._show_sketches())
        if best := self._mutated_traces(size, parents, rank):
            self._add(pool, self._proposer.apply(self._task, best))
        if len(pool) < size // 2:  # a small design space, or one where traces do not apply
            self._add(pool, self._sample(size - len(pool)))
        return list(pool.values())

    def _apply_while_better(
        self, size: int, parents: Sequence[Program], rank: RankTraces, score: Score
    ) -> list[Program]:
        """Random programs, and the best of mutated traces, until some bring nothing better."""
        applied: list[Program] = []
        best, at_once = -math.inf, self._config.unmeasured_applied
        traces = self._mutated_traces(size, parents, rank)
        for start in range(0, len(traces), at_once):
            programs = self._proposer.apply(self._task, traces[start : start + at_once])
            applied += programs
            reached = float(max(score(programs))) if programs else -math.inf
            if reached <= best:
                break
            best = reached
        if len(applied) < at_once // 2:  # a small design space, or traces that do not apply
            applied += self._sample(size)
        return [*self._show_sketches(), *applied]

    def _mutated_traces(self, size: int, parents: Sequence[Program], rank: RankTraces) -> list[str]:
        """The best of mutated traces, none of which was applied."""
        shown = self._show_sketches()
        traces = [*self._fastest(), *(program.trace for program in (*parents, *shown))]
        distinct = list(dict.fromkeys(traces))
        if not distinct:
            return []
        return mutate_traces(distinct, rank, size, self._rng, self._config.mutation, self._unit)

    def _show_sketches(self) -> list[Program]:
        """A few random programs, among them one of each sketch."""
        if not self._sketches:
            self._sketches = self._sample(self._config.sketch_samples)
        return self._sketches

    def _choose_custom_sketches(self, count: int, score: Score | None) -> list[Program]:
        """Programs of custom sketches: random ones, and variations of the fastest of them."""
        if not any(is_custom_sketch(program.trace) for program in self._show_sketches()):
            return []
        size = self._config.candidates_per_pick * count
        pool: dict[str, Program] = {}
        if custom := [
            trace for trace in self._fastest(len(self._latency_s)) if is_custom_sketch(trace)
        ]:
            self._add(pool, self._vary(custom[: self._config.parents], size // 2))
        self._add(pool, self._sample(size - len(pool)))
        chosen = self._choose([p for p in pool.values() if is_custom_sketch(p.trace)], count, score)
        self._seen.update(program.key for program in chosen)
        return chosen

    def _fastest(self, count: int | None = None) -> list[str]:
        """Traces of the fastest programs measured, fastest first; `parents` of them by default."""
        count = self._config.parents if count is None else count
        return heapq.nsmallest(count, self._latency_s, key=self._latency_s.__getitem__)

    @staticmethod
    def _rank(programs: list[Program], score: Score) -> list[Program]:
        """The programs, the best scored first."""
        if not programs:
            return []
        scores = score(programs)
        return [programs[i] for i in sorted(range(len(programs)), key=lambda i: -scores[i])]

    def _choose(self, pool: list[Program], count: int, score: Score | None) -> list[Program]:
        self._rng.shuffle(pool)
        if score is None or len(pool) <= count:
            return pool[:count]
        drawn = round(self._config.random_share * count)
        ranked = self._rank(pool, score)
        best, rest = ranked[: count - drawn], ranked[count - drawn :]
        return best + self._rng.sample(rest, drawn)

    def _add(self, pool: dict[str, Program], programs: Sequence[Program]) -> None:
        pool.update((p.key, p) for p in programs if p.key not in self._seen)

    def _sample(self, count: int) -> list[Program]:
        return self._proposer.sample(self._task, count, self._draw())

    def _vary(self, traces: list[str], count: int) -> list[Program]:
        return self._proposer.vary(self._task, traces, count, self._draw())

    def _draw(self) -> int:
        return self._rng.randrange(2**20)
