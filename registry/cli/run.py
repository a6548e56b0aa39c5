"""`hetfeat run`: runs a bundle; imports neither torch nor MLflow."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from registry.cli import app, output
from registry.cli.options import REQUIRED, argument, option


@dataclass(frozen=True)
class RunOptions:
    """Options of `hetfeat run`."""

    bundle: Path = argument()
    inputs: tuple[Path, ...] = option(
        REQUIRED, ".npy file, or PNG or JPEG.", flag="--input", multiple=True
    )
    output: Path | None = option(None, ".npy, or .npz for several.  [default: not kept]")
    repeat: int = option(1, "Runs, for their median time.", type=click.IntRange(1))


def _render(value: Any) -> str:
    shapes = value.get("shapes") or {"output": value["shape"]}
    lines = [
        *(f"{name} {shape}" for name, shape in shapes.items()),
        f"loaded in {value['loading_s']:.2f} s, ran in {value['run_ms']:.2f} ms"
        + (f", the median of {value['runs']}" if value["runs"] > 1 else ""),
    ]
    if value["output"]:
        lines.append(f"written to {value['output']}")
    return "\n".join(filter(None, [output.table(value["best"]), *lines]))


@app.command(
    "run", RunOptions, example="hetfeat run bundle --input cat.jpg --repeat 20", render=_render
)
def command(options: RunOptions) -> dict[str, Any]:
    """Run a bundle on inputs in .npy files or images; print the five best of many classes."""
    from hetfeat.deploy.bundle import run_bundle

    ran = run_bundle(options.bundle, options.inputs, options.output, options.repeat)
    shapes = {name: list(value.shape) for name, value in ran.outputs.items()}
    (first, *others) = shapes.values()
    return {
        "output": options.output,
        **({"shapes": shapes} if others else {"shape": first}),
        "seconds": ran.loading_s + sum(ran.runs_s),
        "loading_s": ran.loading_s,
        "run_ms": 1e3 * statistics.median(ran.runs_s),
        "runs": options.repeat,
        "best": list(_best_classes(ran.outputs)),
    }


def _best_classes(
    outputs: dict[str, Any], most: int = 5, fewest: int = 10
) -> Iterator[dict[str, Any]]:
    """The best classes of one row of scores, of at least the fewest that are worth a choice."""
    (scores, *others) = outputs.values()
    if others or scores.ndim != 2 or len(scores) != 1 or scores.shape[1] < fewest:
        return
    for number in scores[0].argsort()[::-1][:most].tolist():
        yield {"class": number, "score": float(scores[0][number])}
