"""`hetfeat hpo`: hyperparameters searched with Optuna, the best trial registered."""

from pathlib import Path
from typing import Any

import click

from registry.cli import app


@app.command("hpo", interrupted="trials that ended are kept; the same command goes on")
@app.option(
    "--records", type=Path, help="Record store to train on.  [default: the packaged data set]"
)
@app.option("--family", help="Hardware family or union.  [default: that of the records]")
@app.option("--model", default="xgb", help="xgb, lgbm, mlp or attention.")
@app.option("--split", default="by_task", help="within_task, by_task or by_target.")
@app.option("--holdout", type=app.NAMES, help="Devices (by_target) or networks.")
@app.option("--effort", type=app.EFFORT, default="standard", help="Budget of each training.")
@app.option(
    "--trials", type=click.IntRange(1), default=10, help="Total of the study, over all workers."
)
@app.option(
    "--storage", help="Journal file or database URL of Optuna.  [default: optuna.journal here]"
)
@app.option("--study", help="Name.  [default: made of model, split and data set]")
@app.seed
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
    from registry.jobs.hpo import HyperparameterSearch, search_and_register
    from registry.jobs.train import TrainingRequest

    training = TrainingRequest(records, family, model, split, holdout or (), effort, seed)
    return search_and_register(HyperparameterSearch(training, trials, storage or "", study))
