"""`hetfeat transfer`: a model adapted to a device with few measurements."""

from pathlib import Path
from typing import Any

import click

from registry.commands import _cli


@_cli.command("transfer", interrupted="nothing was registered; what was measured is kept")
@_cli.option(
    "--source", help="Version to start from.  [default: the family's in production, or staging]"
)
@_cli.option("--device", default="local", help="local, a device of the records, a profile's file.")
@_cli.option("--records", type=Path, help="Records to replay.  [default: measure now]")
@_cli.option("--network", type=_cli.NAMES, default="resnet18", help="Whose tasks are measured now.")
@_cli.option(
    "--budget-per-task", type=click.IntRange(1), default=32, help="Measurements to learn from."
)
@_cli.option(
    "--flops-share",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    help="Measure only the tasks that hold this share of all FLOPs.",
)
@_cli.option(
    "--fine-tune-columns",
    type=click.IntRange(0),
    default=0,
    help="Fine-tune on so many feature columns, the most important ones; 0 for all.",
)
@_cli.option("--out", type=Path, help="Store that keeps what is measured.  [default: none]")
@_cli.unrecorded
@_cli.seed
def command(**wanted: Any) -> dict[str, Any]:
    """Adapt a model to a device; register it if the source helped, else say that it did not."""
    from registry.transferring import Transfer, transfer_and_register

    return transfer_and_register(Transfer(**wanted))
