"""`hetfeat transfer`: a model adapted to a device with few measurements."""

from pathlib import Path
from typing import Any

import click

from registry.cli import app


@app.command("transfer", interrupted="nothing was registered; what was measured is kept")
@app.option(
    "--source", help="Version to start from.  [default: the family's in production, or staging]"
)
@app.option("--device", default="local", help="local, a device of the records, a profile's file.")
@app.option("--records", type=Path, help="Records to replay.  [default: measure now]")
@app.option("--network", type=app.NAMES, default="resnet18", help="Whose tasks are measured now.")
@app.option(
    "--budget-per-task", type=click.IntRange(1), default=32, help="Measurements to learn from."
)
@app.option(
    "--flops-share",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    help="Measure only the tasks that hold this share of all FLOPs.",
)
@app.option(
    "--fine-tune-columns",
    type=click.IntRange(0),
    default=0,
    help="Fine-tune on so many feature columns, the most important ones; 0 for all.",
)
@app.option("--out", type=Path, help="Store that keeps what is measured.  [default: none]")
@app.unrecorded
@app.seed
def command(**wanted: Any) -> dict[str, Any]:
    """Adapt a model to a device; register it if the source helped, else say that it did not."""
    from registry.jobs.transfer import Transfer, transfer_and_register

    return transfer_and_register(Transfer(**wanted))
