"""Unapplied traces, mutated by the hundred without TVM; only the best are then applied."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from hetfeat.schedules import trace as traces
from hetfeat.schedules.registers import MANY_REGISTERS, VectorUnit
from hetfeat.schedules.threads import first_kept, keeps_to_threads
from hetfeat.search.base import RankTraces


@dataclass(frozen=True)
class MutationConfig:
    """Settings of `mutate_traces`.

    Attributes:
        population: Unapplied traces of a generation; 128 by default: some hundred are ranked in
            the time in which one is applied.
        generations: Generations before the best are returned; 4 by default, as in TVM's search.
        elite: Best traces so far that the next generation mutates; 16 by default.
        fresh_share: Share of a generation whose decisions are all drawn anew; 0.25 by default.
        crossover_share: Share of the others that mix the decisions of two of the elite; 0.5 by
            default.
        changes: Numbers of decisions changed in one mutation, each as likely; (1, 1, 2, 3) by
            default, which is mostly few.
    """

    population: int = 128
    generations: int = 4
    elite: int = 16
    fresh_share: float = 0.25
    crossover_share: float = 0.5
    changes: tuple[int, ...] = (1, 1, 2, 3)


def mutate_traces(
    parents: Sequence[str],
    rank: RankTraces,
    count: int,
    rng: random.Random,
    config: MutationConfig = MutationConfig(),
    unit: VectorUnit = MANY_REGISTERS,
) -> list[str]:
    """The best of some generations of mutations.

    Args:
        parents: Traces of the task, those of its fastest programs and one at least of each sketch.
        rank: Scores of unapplied traces.
        count: Largest number of traces to return.
        rng: Generator of every draw.
        config: Sizes and shares; those of `MutationConfig` by default.
        unit: Vector registers of the device, by default as many as anybody wants: what does not fit
            them is not applied, so that ranking it is for nothing.

    Returns:
        Up to `count` traces without post-processing, best first, none of them a parent's.
    """
    sketches = [traces.without_postproc(json.loads(text)) for text in dict.fromkeys(parents)]
    parent_texts = {traces.dump(sketch) for sketch in sketches}
    tried: dict[str, traces.Trace] = {}
    scores: dict[str, float] = {}
    elite = sketches
    fewest = unit.fewest_of(sketches)

    def keeps(trace: traces.Trace) -> bool:
        return keeps_to_threads(trace) and unit.holds(trace, fewest)

    heads = {id(sketch[0]): traces.dump(sketch[0]) for sketch in sketches}

    def text_of(trace: traces.Trace) -> str:
        instructions, decisions = trace  # a child's instructions are its sketch's
        return f"[{heads[id(instructions)]},{traces.dump(decisions)}]"

    for _ in range(config.generations):
        new: dict[str, traces.Trace] = {}
        for _ in range(config.population):
            make_child = partial(_child, elite, sketches, rng, config)
            child = first_kept(make_child, keeps)
            if child is not None and (text := text_of(child)) not in tried:
                new[text] = child
        if not new:
            break
        tried |= new
        scores |= dict(zip(new, map(float, rank(list(new))), strict=True))
        best = sorted(scores, key=scores.__getitem__, reverse=True)
        elite = [tried[text] for text in best[: config.elite]]
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    return [text for text in ranked if text not in parent_texts][:count]


def _child(
    elite: Sequence[traces.Trace],
    sketches: Sequence[traces.Trace],
    rng: random.Random,
    config: MutationConfig,
) -> traces.Trace | None:
    if rng.random() < config.fresh_share:
        return traces.drawn_anew(rng.choice(sketches), rng)
    child: traces.Trace | None = rng.choice(elite)
    if child is not None and rng.random() < config.crossover_share:
        child = traces.cross_over(child, rng.choice(elite), rng)
    for _ in range(rng.choice(config.changes)):
        child = child and traces.vary(child, rng)
    return child
