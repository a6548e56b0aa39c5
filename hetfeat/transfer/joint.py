"""A device's few measurements, learnt in one training with the records of other devices.

Trees that go on from a source can only add to what it says. Trees of both share what holds on all
devices, and split by device or task where they differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hetfeat.errors import RequestError
from hetfeat.features.batch import Examples, concatenate, have_stores, joined
from hetfeat.models.base import CostModel
from hetfeat.models.hyperparameters import build
from hetfeat.models.labels import anchors_seen, group_codes, records_seen
from hetfeat.models.metrics import by_group


@dataclass(frozen=True)
class JointOptions:
    """What of other devices is learnt beside the measured programs, and for how long.

    Attributes:
        programs_per_task: Most programs of a task on another device, default 60: more take longer.
        repeats: How often each measured program counts, default 6: they are few, and what the model
            is for.
        rounds: Rounds of boosting, default 300.
    """

    programs_per_task: int = 60
    repeats: int = 6
    rounds: int = 300


DEFAULT_JOINT = JointOptions()


def refuse_no_trees(source: CostModel) -> None:
    """Raises RequestError for a source that is no model of trees: networks take hours together."""
    if not hasattr(getattr(source, "settings", None), "fine_tune_columns"):
        raise RequestError(
            "--source-records with a source that is no model of trees",
            "a source that is xgb or lgbm",
            "leave --source-records out",
        )


def learnt_together(
    source: CostModel,
    kind: str,
    taught: Examples,
    measured: Examples,
    effort: str,
    seed: int,
    options: JointOptions = DEFAULT_JOINT,
) -> CostModel:
    """A model of both, which ranks unapplied traces as the source does, fine-tuned.

    It does not know how well it orders programs that it has not seen: nothing is held out.

    Args:
        source: Model of the other devices.
        kind: Name of its kind, a model of trees.
        taught: Records of other devices.
        measured: Records of the device, which weigh more.
        effort: Effort of the model: `quick`, `standard` or `full`.
        seed: Seed of the model and of the draw among `taught`.
        options: Sizes, default `DEFAULT_JOINT`.

    Raises:
        DataError: The measurements are too few or too equal to learn from.
    """
    drawn = thinned(taught, options.programs_per_task, seed)
    both = _end_to_end([drawn, *[measured] * options.repeats])
    values = {"rounds": options.rounds, "patience": options.rounds}
    model: Any = build(kind, effort, seed, values)
    model.fit(both, both.take(np.arange(len(drawn), len(drawn) + len(measured))))
    model.seen = records_seen(drawn, measured)
    model.seen_anchors = anchors_seen(drawn, measured)
    model.valid_pca = model.chance_error = None
    ranker = source.trace_ranker
    model.trace_ranker = ranker.fine_tune(measured) if ranker else None
    fitted: CostModel = model
    return fitted


def thinned(records: Examples, programs: int, seed: int) -> Examples:
    """So many programs of each task on a device at most, drawn at random."""
    rng = np.random.default_rng(seed)
    groups = by_group(group_codes(records)[0])
    return records.take(np.sort(np.concatenate([rng.permutation(g)[:programs] for g in groups])))


def _end_to_end(parts: Sequence[Examples]) -> Examples:
    """All parts in one; without stores where not all have them, for they tell devices apart."""
    batches = [part.batch.loaded() for part in parts]
    if not all(map(have_stores, batches)):
        batches = [batch.without_stores() for batch in batches]
    loaded = [replace(part, batch=batch) for part, batch in zip(parts, batches, strict=True)]
    return concatenate(loaded, joined(batches))
