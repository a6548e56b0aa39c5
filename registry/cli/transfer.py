"""`hetfeat transfer`: a model adapted to a device with few measurements."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hetfeat.dataset.tables.uri import AsOf, Place
from registry.cli import app
from registry.cli.options import (
    as_of_option,
    builders_option,
    option,
    seed_option,
    unrecorded_option,
)
from registry.cli.params import DEVICE, MODEL_VERSION, NETWORKS, PLACE
from registry.cli.places import local


@dataclass(frozen=True)
class TransferOptions:
    """Options of `hetfeat transfer`."""

    source: str | None = option(
        None,
        "Version to start from.  [default: the family's in production, or staging]",
        type=MODEL_VERSION,
    )
    device: str = option("local", "local, a device of the records, a profile's file.", type=DEVICE)
    records: Place | None = option(None, "Records to replay.  [default: measure now]", type=PLACE)
    as_of: AsOf | None = as_of_option()
    source_records: Place | None = option(
        None,
        "What the source learnt from, to learn it together.  [default: only fine-tune]",
        type=PLACE,
    )
    network: tuple[str, ...] = option(("resnet18",), "Whose tasks are measured now.", type=NETWORKS)
    budget_per_task: int = option(32, "Measurements to learn from.", type=click.IntRange(1))
    flops_share: float = option(
        1.0,
        "Measure only the tasks that hold this share of all FLOPs.",
        type=click.FloatRange(0, 1, min_open=True),
    )
    fine_tune_columns: int = option(
        0,
        "Fine-tune on so many feature columns, the most important ones; 0 for all.",
        type=click.IntRange(0),
    )
    builders: str | None = builders_option()
    out: Path | None = option(None, "Store that keeps what is measured.  [default: none]")
    unrecorded: bool = unrecorded_option()
    seed: int = seed_option()


@app.command(
    "transfer",
    TransferOptions,
    example="hetfeat transfer --source costmodel.cpu-x86@production --budget-per-task 8",
    interrupted="nothing was registered; what was measured is kept",
)
def command(options: TransferOptions) -> dict[str, Any]:
    """Adapt a model to a device; register it if the source helped, else say that it did not."""
    from registry.jobs.transfer import Transfer, transfer_and_register

    given = vars(options) | {
        "records": local(options.records, options.as_of),
        "source_records": local(options.source_records, None),
    }
    del given["as_of"]
    return transfer_and_register(Transfer(**given))
