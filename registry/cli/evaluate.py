"""`hetfeat evaluate`: the figures of a stored model on records."""

from dataclasses import dataclass
from typing import Any

from hetfeat.dataset.tables.uri import AsOf, Place
from registry.cli import app
from registry.cli.options import (
    REQUIRED,
    as_of_option,
    cluster_option,
    option,
    seed_option,
    unrecorded_option,
)
from registry.cli.params import DEVICE_NAME, PLACE, VERSION_OR_FOLDER


@dataclass(frozen=True)
class EvaluateOptions:
    """Options of `hetfeat evaluate`."""

    model: str = option(
        REQUIRED, "models:/NAME/VERSION, NAME@alias or a folder.", type=VERSION_OR_FOLDER
    )
    records: Place = option(REQUIRED, "Record store to judge on.", type=PLACE)
    as_of: AsOf | None = as_of_option()
    device: str | None = option(
        None, "Only the records of this device.  [default: all]", type=DEVICE_NAME
    )
    per_task: bool = option(False, "Figures of each task, too.")
    cluster: str | None = cluster_option()
    unrecorded: bool = unrecorded_option()
    seed: int = seed_option()


@app.command(
    "evaluate",
    EvaluateOptions,
    example="hetfeat evaluate --model costmodel.cpu-x86@production --records records",
)
def command(options: EvaluateOptions) -> dict[str, Any]:
    """Judge a stored model on records; nothing is logged or changed."""
    from hetfeat.cluster import connected
    from hetfeat.dataset.tables.local_copy import local_records
    from registry.jobs.evaluate import evaluate_stored

    with connected(options.cluster) as cluster:
        return evaluate_stored(
            options.model,
            local_records(options.records, options.as_of),
            options.device,
            options.per_task,
            options.seed,
            options.unrecorded,
            cluster,
        )
