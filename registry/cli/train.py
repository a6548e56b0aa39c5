"""`hetfeat train`: a cost model from measured records to a registered version."""

from pathlib import Path
from typing import Any

from registry.cli import app, output


def _render(value: Any) -> str:
    """The version, its figures beside those of no model, and what they rest on."""
    rows = [
        {"": "model", **value["metrics"]},
        *({"": name, **figures} for name, figures in value["baselines"].items()),
    ]
    details = value["details"]
    notes = [
        f"{value['model']} version {value['version']}, run {value['run_id']}",
        f"trained in {value['train_s']:.1f} s on {value['train_records']} records, "
        f"tested on {value['test_records']}",
        f"top-k over {details['topk_tasks']:.0f} tasks of at least "
        f"{details['topk_smallest_task']:.0f} programs"
        + ("" if details["topk_by_definition"] else " (the figure is defined on 256 or more)"),
    ]
    return "\n".join([*notes, "", output.table(rows)])


@app.command(
    "train",
    render=_render,
    interrupted="nothing was registered; the same command begins anew",
)
@app.option(
    "--records", type=Path, help="Record store to train on.  [default: the packaged data set]"
)
@app.option("--family", help="Hardware family or union.  [default: that of the records]")
@app.option("--model", default="xgb", help="xgb, lgbm, mlp or attention.")
@app.option("--split", default="by_task", help="within_task, by_task or by_target.")
@app.option("--holdout", type=app.NAMES, help="Devices (by_target) or networks.")
@app.option("--pruned", type=app.SWITCH, default="false", help="Prune the training side.")
@app.option("--effort", type=app.EFFORT, default="standard", help="Budget of the training.")
@app.option(
    "--set",
    type=app.NAMES,
    metavar="NAME=VALUE,...",
    help="Hyperparameters of the model.  [default: those of the effort]",
)
@app.seed
def command(
    records: Path | None,
    family: str | None,
    model: str,
    split: str,
    holdout: tuple[str, ...] | None,
    pruned: bool,
    effort: str,
    set: tuple[str, ...] | None,
    seed: int,
) -> dict[str, Any]:
    """Train a cost model, judge it on held-out records, log it and register it."""
    from hetfeat.models.settings import parsed
    from registry.jobs.train import TrainingRequest, train_and_register

    settings = parsed(model, set or ())
    return train_and_register(
        TrainingRequest(
            records, family, model, split, holdout or (), effort, seed, pruned, settings
        )
    )
