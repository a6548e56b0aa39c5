"""`hetfeat collect`: measures programs of networks into a record store."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hetfeat.dataset.tables.uri import Place
from registry.cli import app
from registry.cli.options import builders_option, option, output_option, seed_option
from registry.cli.params import DEVICES, NETWORKS, PLACE


@dataclass(frozen=True)
class CollectOptions:
    """Options of `hetfeat collect`."""

    device: tuple[str, ...] = option(
        ("local",),
        "local, this machine's name or a profile's file; several run the same programs.",
        type=DEVICES,
    )
    network: tuple[str, ...] = option(
        ("resnet18", "mobilenet_v3_small"),
        "Networks; resnet18@4 is one at batch 4.",
        type=NETWORKS,
    )
    programs_per_task: int = option(64, "Programs to measure of each task.", type=click.IntRange(1))
    evaluation_tasks: int = option(
        0, "Tasks to measure densely and hold out of training.", type=click.IntRange(0)
    )
    evaluation_programs: int = option(
        256, "Programs to measure of each of those.", type=click.IntRange(2)
    )
    winograd: bool = option(
        True, "Also the ways of a convolution that deploy lets compete: Winograd's algorithm."
    )
    builders: str | None = builders_option()
    out: Place = option(Path("records"), "Record store; made, or added to.", type=PLACE)
    output: tuple[str, ...] = output_option()
    seed: int = seed_option()


@app.command(
    "collect",
    CollectOptions,
    example="hetfeat collect --network resnet18,vgg16 --programs-per-task 64 --out records",
    interrupted="what was measured is kept; the same command goes on",
)
def command(options: CollectOptions) -> dict[str, Any]:
    """Measure programs of networks; what the store holds already is not measured again."""
    from hetfeat.cluster import builders_at, connected
    from hetfeat.tune.collect import Plan
    from hetfeat.workloads.winograd import TRANSFORMS
    from registry.jobs.collect import collect_networks

    plan = Plan(
        options.programs_per_task,
        options.evaluation_tasks,
        options.evaluation_programs,
        options.seed,
    )
    tiles = tuple(TRANSFORMS) if options.winograd else ()
    with connected(builders_at(options.builders)) as cluster:
        return collect_networks(
            options.device, options.network, options.out, plan, tiles, options.output, cluster
        )
