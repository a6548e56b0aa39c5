"""Features of drafts: traces that nobody has applied yet, so that they have no stores."""

from dataclasses import replace

import numpy as np

from hetfeat.features.batch import Batch
from hetfeat.features.trace import vectors_of_steps


def as_drafts(batch: Batch) -> Batch:
    """What is known of programs before their traces are applied and post-processed."""
    return replace(
        batch,
        stores=batch.stores[:0],
        offsets=np.zeros_like(batch.offsets),
        trace=vectors_of_steps(batch.steps, batch.step_offsets),
    )
