"""`hetfeat evaluate`: the figures of a stored model on records."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.cli import app
from registry.cli.options import REQUIRED, cluster_option, option, seed_option, unrecorded_option
from registry.cli.params import DEVICE_NAME, VERSION_OR_FOLDER


@dataclass(frozen=True)
class EvaluateOptions:
    """Options of `hetfeat evaluate`."""

    model: str = option(
        REQUIRED, "models:/NAME/VERSION, NAME@alias or a folder.", type=VERSION_OR_FOLDER
    )
    records: Path = option(REQUIRED, "Record store to judge on.")
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
    from registry.jobs.evaluate import evaluate_stored

    with connected(options.cluster) as cluster:
        return evaluate_stored(
            options.model,
            options.records,
            options.device,
            options.per_task,
            options.seed,
            options.unrecorded,
            cluster,
        )
