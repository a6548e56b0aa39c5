"""`hetfeat import`: foreign records into the store."""

import os
import sys
from pathlib import Path
from typing import Any

from hetfeat.dataset.importers.table import FORMATS
from registry.commands import _cli


@_cli.command("import")
@_cli.argument("path", metavar="PATH...", nargs=-1, required=True, type=Path)
@_cli.option("--format", required=True, help=f"{', '.join(FORMATS)}.")
@_cli.option("--device", required=True, help="Its name; a new one gets a profile of the records.")
@_cli.option("--out", type=Path, default="records", help="Record store; made, or added to.")
def command(path: tuple[Path, ...], format: str, device: str, out: Path) -> dict[str, Any]:
    """Read records that other tools have measured: files, plain or gzip, and folders of them."""
    from tqdm import tqdm

    from hetfeat.dataset.importers.run import Counts, import_records
    from hetfeat.tune.importing import FeatureExtraction

    with (
        FeatureExtraction() as extraction,
        tqdm(
            unit="record",
            file=sys.stderr,
            mininterval=0.5 if sys.stderr.isatty() else 10,
            delay=1,  # a refusal is one line
            disable=bool(os.environ.get("HETFEAT_QUIET")),
        ) as shown,
    ):

        def show(counts: Counts) -> None:
            shown.update(counts.read - shown.n)

        counts = import_records(format, device, path, out, show, extraction)
    return {**counts.summary(), "device": device, "out": out}
