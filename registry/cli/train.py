"""`hetfeat train`: a cost model from measured records to a registered version."""

from dataclasses import dataclass
from typing import Any

from hetfeat.dataset.tables.uri import AsOf, Place
from registry.cli import app, output
from registry.cli.options import as_of_option, cluster_option, option, seed_option
from registry.cli.params import EFFORT, MODEL, PLACE, SPLIT
from registry.cli.places import local


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
    notes += [
        f"PCA beside {name.removeprefix('pca_support')} measured programs a task "
        f"{figure:.4f}, {details[f'{name}_without']:.4f} without reading them"
        for name, figure in details.items()
        if details.get(f"{name}_without", figure) != figure
    ]
    return "\n".join([*notes, "", output.table(rows)])


@dataclass(frozen=True)
class DataSetOptions:
    """Options of every command that trains: the records, the model and the split."""

    records: Place | None = option(
        None, "Record store to train on.  [default: the packaged data set]", type=PLACE
    )
    as_of: AsOf | None = as_of_option()
    family: str | None = option(None, "Hardware family or union.  [default: that of the records]")
    model: str = option("xgb", "xgb, lgbm, mlp or attention.", type=MODEL)
    split: str = option("by_task", "within_task, by_task or by_target.", type=SPLIT)
    holdout: tuple[str, ...] = option((), "Devices (by_target) or networks.")


@dataclass(frozen=True)
class TrainOptions(DataSetOptions):
    """Options of `hetfeat train`."""

    pruned: bool = option(False, "Prune the training side.")
    effort: str = option("standard", "Budget of the training.", type=EFFORT)
    set: tuple[str, ...] = option(
        (),
        "Hyperparameters of the model.  [default: those of the effort]",
        metavar="NAME=VALUE,...",
    )
    cluster: str | None = cluster_option()
    seed: int = seed_option()


@app.command(
    "train",
    TrainOptions,
    example="hetfeat train --records records --model xgb",
    render=_render,
    interrupted="nothing was registered; the same command begins anew",
)
def command(options: TrainOptions) -> dict[str, Any]:
    """Train a cost model, judge it on held-out records, log it and register it."""
    from hetfeat.cluster import connected
    from hetfeat.models.settings import parsed
    from registry.jobs.train import TrainingRequest, train_and_register

    request = TrainingRequest(
        records=local(options.records, options.as_of),
        family=options.family,
        model=options.model,
        split=options.split,
        holdout=options.holdout,
        effort=options.effort,
        seed=options.seed,
        pruned=options.pruned,
        settings=parsed(options.model, options.set),
    )
    with connected(options.cluster) as cluster:
        return train_and_register(request, cluster)
