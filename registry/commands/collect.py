"""`hetfeat collect`: measures programs of networks into a record store."""

from pathlib import Path
from typing import Any

import click

from registry.commands import _cli


@_cli.command("collect")
@_cli.option("--device", default="local", help="local, this machine's name or a profile's file.")
@_cli.option("--network", type=_cli.NAMES, default="resnet18,mobilenet_v3_small")
@_cli.option("--programs-per-task", type=click.IntRange(1), default=64)
@_cli.option("--out", type=Path, default="records", help="Record store; made, or added to.")
@_cli.seed
def command(
    device: str, network: tuple[str, ...], programs_per_task: int, out: Path, seed: int
) -> dict[str, Any]:
    """Measure programs of networks; what the store holds already is not measured again."""
    from registry.collection import collect_networks

    return collect_networks(device, network, programs_per_task, out, seed)
