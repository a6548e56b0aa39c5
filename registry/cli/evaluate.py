"""`hetfeat evaluate`: the figures of a stored model on records."""

from pathlib import Path
from typing import Any

from registry.cli import app


@app.command("evaluate")
@app.option("--model", required=True, help="models:/NAME/VERSION, NAME@alias or a folder.")
@app.option("--records", type=Path, required=True, help="Record store to judge on.")
@app.option(
    "--device", type=app.DEVICE_NAME, help="Only the records of this device.  [default: all]"
)
@app.option("--per-task", type=app.SWITCH, default="false", help="Figures of each task, too.")
@app.unrecorded
@app.seed
def command(
    model: str, records: Path, device: str | None, per_task: bool, unrecorded: bool, seed: int
) -> dict[str, Any]:
    """Judge a stored model on records; nothing is logged or changed."""
    from registry.jobs.evaluate import evaluate_stored

    return evaluate_stored(model, records, device, per_task, seed, unrecorded)
