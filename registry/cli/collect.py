"""`hetfeat collect`: measures programs of networks into a record store."""

from pathlib import Path
from typing import Any

import click

from registry.cli import app


@app.command("collect", interrupted="what was measured is kept; the same command goes on")
@app.option(
    "--device",
    type=app.NAMES,
    default="local",
    help="local, this machine's name or a profile's file; several run the same programs.",
)
@app.option(
    "--network",
    type=app.NAMES,
    default="resnet18,mobilenet_v3_small",
    help="Networks; resnet18@4 is one at batch 4.",
)
@app.option("--programs-per-task", type=click.IntRange(1), default=64)
@app.option(
    "--evaluation-tasks",
    type=click.IntRange(0),
    default=0,
    help="Tasks to measure densely and hold out of training.",
)
@app.option("--evaluation-programs", type=click.IntRange(2), default=256)
@app.option(
    "--winograd",
    type=app.SWITCH,
    default="true",
    help="Also the ways of a convolution that deploy lets compete: Winograd's algorithm.",
)
@app.option("--out", type=Path, default="records", help="Record store; made, or added to.")
@app.seed
def command(
    device: tuple[str, ...],
    network: tuple[str, ...],
    programs_per_task: int,
    evaluation_tasks: int,
    evaluation_programs: int,
    winograd: bool,
    out: Path,
    seed: int,
) -> dict[str, Any]:
    """Measure programs of networks; what the store holds already is not measured again."""
    from hetfeat.tune.collect import Plan
    from hetfeat.workloads.winograd import TRANSFORMS
    from registry.jobs.collect import collect_networks

    plan = Plan(programs_per_task, evaluation_tasks, evaluation_programs, seed)
    return collect_networks(device, network, out, plan, tuple(TRANSFORMS) if winograd else ())
