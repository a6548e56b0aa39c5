"""`hetfeat run`: runs a bundle; imports neither torch nor MLflow."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.cli import app
from registry.cli.options import REQUIRED, argument, option


@dataclass(frozen=True)
class RunOptions:
    """Options of `hetfeat run`."""

    bundle: Path = argument()
    inputs: tuple[Path, ...] = option(REQUIRED, ".npy file.", flag="--input", multiple=True)
    output: Path = option(REQUIRED, ".npy, or .npz for several.")


@app.command("run", RunOptions, example="hetfeat run bundle --input image.npy --output scores.npy")
def command(options: RunOptions) -> dict[str, Any]:
    """Run a bundle on inputs in .npy files."""
    import time

    from hetfeat.deploy.bundle import run_bundle

    started = time.perf_counter()
    found = run_bundle(options.bundle, options.inputs, options.output)
    shapes = {name: list(value.shape) for name, value in found.items()}
    (first, *others) = shapes.values()
    return {
        "output": options.output,
        **({"shapes": shapes} if others else {"shape": first}),
        "seconds": time.perf_counter() - started,
    }
