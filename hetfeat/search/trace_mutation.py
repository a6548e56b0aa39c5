"""Drafts: traces varied by the hundred without TVM, of which only the best are applied."""

import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from hetfeat.schedules import trace as traces
from hetfeat.schedules.threads import first_kept, keeps_to_threads

Rank = Callable[[Sequence[str]], npt.NDArray[np.floating[Any]]]
"""Scores of traces of a task, float [n]; higher is faster."""

DRAFTS, GENERATIONS = 128, 4
"""Drafts of a generation, and generations."""
ELITE = 16
"""Drafts that are varied in the next generation: the best so far."""
FRESH_SHARE = 0.25
"""Share of a generation whose decisions are all drawn anew."""
CHANGES = (1, 1, 2, 3)


def bred(parents: Sequence[str], rank: Rank, count: int, rng: random.Random) -> list[str]:
    """The best of some generations of variations.

    Args:
        parents: Traces of the task, those of its fastest programs and one at least of each sketch.
        rank: The judgement of drafts.
        count: Drafts wanted.
        rng: Of every draw.

    Returns:
        Up to `count` traces without post-processing, best first, none of them a parent's.
    """
    known = {text: traces.without_postproc(json.loads(text)) for text in parents}
    sketches = list(known.values())
    given = {traces.dump(sketch) for sketch in sketches}
    made: dict[str, traces.Trace] = {}
    scores: dict[str, float] = {}
    elite = sketches
    for _ in range(GENERATIONS):
        new: dict[str, traces.Trace] = {}
        for _ in range(DRAFTS):
            child = first_kept(partial(_child, elite, sketches, rng), keeps_to_threads)
            if child is not None and (text := traces.dump(child)) not in made:
                new[text] = child
        if not new:
            break
        made |= new
        scores |= dict(zip(new, map(float, rank(list(new))), strict=True))
        best = sorted(scores, key=scores.__getitem__, reverse=True)
        elite = [made[text] for text in best[:ELITE]]
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    return [text for text in ranked if text not in given][:count]


def _child(
    elite: Sequence[traces.Trace], sketches: Sequence[traces.Trace], rng: random.Random
) -> traces.Trace | None:
    if rng.random() < FRESH_SHARE:
        return traces.drawn_anew(rng.choice(sketches), rng)
    child: traces.Trace | None = rng.choice(elite)
    if child is not None and rng.random() < 0.5:
        child = traces.crossed(child, rng.choice(elite), rng)
    for _ in range(rng.choice(CHANGES)):
        child = child and traces.vary(child, rng)
    return child
