"""`hetfeat import`: foreign records into the store."""

from pathlib import Path
from typing import Any

from hetfeat.dataset.importers.formats import FORMATS
from registry.cli import app


@app.command("import", interrupted="what was read is kept")
@app.argument("path", metavar="PATH...", nargs=-1, required=True)
@app.option("--format", required=True, help=f"{', '.join(FORMATS)}.")
@app.option(
    "--device",
    required=True,
    type=app.DEVICE_NAME,
    help="Its name; a new one is the preset of that name, or what the records say.",
)
@app.option("--out", type=Path, default="records", help="Record store; made, or added to.")
def command(path: tuple[str, ...], format: str, device: str, out: Path) -> dict[str, Any]:
    """Read records that other tools have measured: files, plain or gzip, and folders of them."""
    from hetfeat.dataset.importers.import_records import Counts, import_records
    from hetfeat.progress import progress
    from hetfeat.tune.feature_extraction import FeatureExtraction

    with FeatureExtraction() as extraction, progress(None, "record") as at:

        def show(counts: Counts) -> None:
            at(counts.read)

        counts = import_records(format, device, _paths(path), out, show, extraction)
    counts.check()
    return {**counts.summary(), "device": device, "out": out}


def _paths(given: tuple[str, ...]) -> list[Path]:
    """MLflow passes several as one, with commas between them."""
    return [
        Path(one) for text in given for one in ([text] if Path(text).exists() else text.split(","))
    ]
