"""`hetfeat run`: runs a bundle; imports neither torch nor MLflow."""

from pathlib import Path
from typing import Any

from registry.cli import app


@app.command("run")
@app.argument("bundle", type=Path)
@app.option("--input", "inputs", type=Path, required=True, multiple=True, help=".npy file.")
@app.option("--output", type=Path, required=True, help=".npy, or .npz for several.")
def command(bundle: Path, inputs: tuple[Path, ...], output: Path) -> dict[str, Any]:
    """Run a bundle on inputs in .npy files."""
    import time

    from hetfeat.deploy.bundle import run_bundle

    started = time.perf_counter()
    found = run_bundle(bundle, inputs, output)
    shapes = {name: list(value.shape) for name, value in found.items()}
    (first, *others) = shapes.values()
    return {
        "output": output,
        **({"shapes": shapes} if others else {"shape": first}),
        "seconds": time.perf_counter() - started,
    }
