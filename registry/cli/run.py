"""`hetfeat run`: runs a bundle; imports neither torch nor MLflow."""

from pathlib import Path
from typing import Any

from registry.cli import app


@app.command("run")
@app.argument("bundle", type=Path)
@app.option("--input", "inputs", type=Path, required=True, multiple=True, help=".npy file.")
@app.option("--output", type=Path, required=True, help=".npy file to write.")
def command(bundle: Path, inputs: tuple[Path, ...], output: Path) -> dict[str, Any]:
    """Run a bundle on inputs in .npy files."""
    import time

    import numpy as np

    from hetfeat.deploy.bundle import run_bundle
    from hetfeat.errors import RequestError

    if output.is_dir() or not output.parent.is_dir():
        raise RequestError(f"--output '{output}'", "a file in a folder that exists", "correct it")
    started = time.perf_counter()
    result = run_bundle(bundle, inputs)
    with output.open("wb") as file:
        np.save(file, result, allow_pickle=False)
    return {
        "output": output,
        "shape": list(result.shape),
        "seconds": time.perf_counter() - started,
    }
