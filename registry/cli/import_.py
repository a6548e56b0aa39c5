"""`hetfeat import`: foreign records into the store."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hetfeat.dataset.importers.formats import FORMATS
from hetfeat.dataset.tables.uri import Place
from registry.cli import app
from registry.cli.options import REQUIRED, argument, cluster_option, option
from registry.cli.params import DEVICE_NAME, FORMAT, PLACE


@dataclass(frozen=True)
class ImportOptions:
    """Options of `hetfeat import`."""

    path: tuple[str, ...] = argument(metavar="PATH...", nargs=-1, type=click.Path(readable=False))
    format: str = option(REQUIRED, f"{', '.join(FORMATS)}.", type=FORMAT)
    device: str = option(
        REQUIRED,
        "Its name; a new one is the preset of that name, or what the records say.",
        type=DEVICE_NAME,
    )
    out: Place = option(Path("records"), "Record store; made, or added to.", type=PLACE)
    cluster: str | None = cluster_option()


@app.command(
    "import",
    ImportOptions,
    example="hetfeat import log.json --format ansor --device board.yaml --out records",
    interrupted="what was read is kept",
)
def command(options: ImportOptions) -> dict[str, Any]:
    """Read records that other tools have measured: files, plain or gzip, and folders of them."""
    from hetfeat.cluster import connected, over
    from hetfeat.dataset.importers.import_records import Counts, import_records
    from hetfeat.progress import progress
    from hetfeat.tune.feature_extraction import FeatureExtraction

    with (
        connected(options.cluster) as cluster,
        FeatureExtraction() as extraction,
        progress(None, "record") as at,
    ):

        def show(counts: Counts) -> None:
            at(counts.read)

        counts = import_records(
            options.format,
            options.device,
            _paths(options.path),
            options.out,
            show,
            extraction,
            over=over(cluster),
        )
    counts.check()
    return {**counts.summary(), "device": options.device, "out": options.out}


def _paths(given: tuple[str, ...]) -> list[Path]:
    """MLflow passes several as one, with commas between them."""
    return [
        Path(one) for text in given for one in ([text] if Path(text).exists() else text.split(","))
    ]
