"""Features of unapplied traces, which have no stores yet."""

from dataclasses import replace

from hetfeat.features.batch import Batch
from hetfeat.features.trace import vectors_of_steps


def as_unapplied(batch: Batch) -> Batch:
    """What is known of programs before their traces are applied and post-processed."""
    trace = vectors_of_steps(batch.steps, batch.step_offsets)
    return replace(batch.without_stores(), trace=trace)
