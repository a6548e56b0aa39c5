"""`hetfeat evaluate`: the figures of a stored model on records."""

from pathlib import Path
from typing import Any

from registry.commands import _cli


@_cli.command("evaluate")
@_cli.option("--model", required=True, help="models:/NAME/VERSION, NAME@alias or a folder.")
@_cli.option("--records", type=Path, required=True, help="Record store to judge on.")
@_cli.option(
    "--device", type=_cli.DEVICE_NAME, help="Only the records of this device.  [default: all]"
)
@_cli.option("--per-task", type=_cli.SWITCH, default="false", help="Figures of each task, too.")
@_cli.unrecorded
@_cli.seed
def command(
    model: str, records: Path, device: str | None, per_task: bool, unrecorded: bool, seed: int
) -> dict[str, Any]:
    """Judge a stored model on records; nothing is logged or changed."""
    from registry.evaluating import evaluate_stored

    return evaluate_stored(model, records, device, per_task, seed, unrecorded)
