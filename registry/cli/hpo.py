"""`hetfeat hpo`: hyperparameters searched with Optuna, the best trial registered."""

from dataclasses import dataclass
from typing import Any

import click

from registry.cli import app
from registry.cli.options import option, seed_option
from registry.cli.params import EFFORT
from registry.cli.places import local
from registry.cli.train import DataSetOptions


@dataclass(frozen=True)
class HpoOptions(DataSetOptions):
    """Options of `hetfeat hpo`."""

    effort: str = option("standard", "Budget of each training.", type=EFFORT)
    trials: int = option(10, "Total of the study, over all workers.", type=click.IntRange(1))
    storage: str | None = option(
        None, "Journal file or database URL of Optuna.  [default: optuna.journal here]"
    )
    study: str | None = option(None, "Name.  [default: made of model, split and data set]")
    seed: int = seed_option()


@app.command(
    "hpo",
    HpoOptions,
    example="hetfeat hpo --model xgb --trials 20",
    interrupted="trials that ended are kept; the same command goes on",
)
def command(options: HpoOptions) -> dict[str, Any]:
    """Search hyperparameters; go on with a study that is there, alone or beside others."""
    from registry.jobs.hpo import HyperparameterSearch, search_and_register
    from registry.jobs.train import TrainingRequest

    training = TrainingRequest(
        records=local(options.records, options.as_of),
        family=options.family,
        model=options.model,
        split=options.split,
        holdout=options.holdout,
        effort=options.effort,
        seed=options.seed,
    )
    return search_and_register(
        HyperparameterSearch(training, options.trials, options.storage or "", options.study)
    )
