"""`hetfeat hpo`: hyperparameters searched with Optuna, the best trial registered."""

from pathlib import Path
from typing import Any

import click

from registry.commands import _cli


@_cli.command("hpo", interrupted="trials that ended are kept; the same command goes on")
@_cli.option(
    "--records", type=Path, help="Record store to train on.  [default: the packaged data set]"
)
@_cli.option("--family", help="Hardware family or union.  [default: that of the records]")
@_cli.option("--model", default="xgb", help="xgb, lgbm, mlp or attention.")
@_cli.option("--split", default="by_task", help="within_task, by_task or by_target.")
@_cli.option("--holdout", type=_cli.NAMES, help="Devices (by_target) or networks.")
@_cli.option("--effort", type=_cli.EFFORT, default="standard", help="Budget of each training.")
@_cli.option(
    "--trials", type=click.IntRange(1), default=10, help="Total of the study, over all workers."
)
@_cli.option(
    "--storage", help="Journal file or database URL of Optuna.  [default: optuna.journal here]"
)
@_cli.option("--study", help="Name.  [default: made of model, split and data set]")
@_cli.seed
def command(
    records: Path | None,
    family: str | None,
    model: str,
    split: str,
    holdout: tuple[str, ...] | None,
    effort: str,
    trials: int,
    storage: str | None,
    study: str | None,
    seed: int,
) -> dict[str, Any]:
    """Search hyperparameters; go on with a study that is there, alone or beside others."""
    from registry.training import TrainingRequest
    from registry.tuning_hyperparameters import HyperparameterSearch, search_and_register

    training = TrainingRequest(records, family, model, split, holdout or (), effort, seed)
    return search_and_register(HyperparameterSearch(training, trials, storage or "", study))
