"""Searches hyperparameters with Optuna; the best trial becomes a registered version."""

import logging
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState
from pydantic import AllowInfNan, StringConstraints

from hetfeat.errors import RequestError
from hetfeat.features.columns import FEATURES_VERSION
from hetfeat.models.base import CostModel
from hetfeat.models.hyperparameters import build, space_of
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import pairwise_accuracy
from hetfeat.parsing import Count, Json, Schema
from hetfeat.progress import progress, record
from registry.jobs import optuna_study
from registry.jobs.optuna_study import TRIALS, TrialOptions
from registry.jobs.train import (
    DECIDING_METRICS,
    MAIN_METRICS,
    TrainingData,
    TrainingRequest,
    evaluation_digest,
    fit_and_register,
    load_data,
    source_tags,
)
from registry.models import process
from registry.models.gates import figure
from registry.models.lock import locked
from registry.models.mlflow_client import (
    MISSING,
    condition,
    connect,
    error_code,
    patiently,
    translated,
)
from registry.models.names import check_model_name, cost_model_name
from registry.models.signatures import check_signing_key
from registry.models.version import EVALUATION_TAG, FEATURES_TAG, Version
from registry.models.versions import search_versions
from registry.tracking import command_run
from registry.tracking.live import Curve

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger(__name__)

VALUE = "valid_pca"
BEST = f"progress/best_{VALUE}"
"""Figure of a study while it goes on: the best value so far, by trials."""
STUDY_TAG, TRIAL_TAG, IDENTITY_TAG = "study", "study_trial", "study_identity"
_REQUEST, _PARENT, _CLAIM, _RESULT = "request", "parent_run", "claim", "result"
_IDENTITY = "identity"
"""User attribute that tells a study from another of the same name."""
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,100}$")]
"""Id that tells a study or an MLflow run from any other."""


@dataclass(frozen=True)
class HyperparameterSearch:
    """What `hetfeat hpo` was asked for.

    Attributes:
        training: Request that says how each trial is trained.
        trials: Total number of trials of the study, over all calls and workers.
        storage: Journal file or URL; empty for the default journal.
        study: Name of the study, or None for one made of model, split and data.
        options: Options of the workers, default `optuna_study.TRIALS`.
    """

    training: TrainingRequest
    trials: int
    storage: str
    study: str | None
    options: TrialOptions = TRIALS


@dataclass(frozen=True)
class _Work:
    """What a worker has at hand; `tags` are those of every run of the study."""

    search: HyperparameterSearch
    data: TrainingData
    study: optuna.Study
    client: "MlflowClient"
    lock_name: str
    tags: Mapping[str, str]


class _Best(Schema):
    """The best trial of a study, as its worker wrote it down."""

    number: Count
    params: dict[str, Json]
    value: float | None


class _Result(Schema):
    """What came of a study, as the worker that registered it wrote it down."""

    study: str
    total: Count
    best: _Best
    run_id: str | None
    model: str
    version: Count
    metrics: dict[str, Annotated[float, AllowInfNan(True)]]
    dataset_digest: str


def search_and_register(search: HyperparameterSearch) -> dict[str, Any]:
    """Does the whole of `hetfeat hpo`.

    Trials see the valid side only; the test side judges the best one, once, after all are done.
    Several processes may work on one study: each waits for the last trial, one of them trains the
    best again and registers it, and all return the same.

    Returns:
        The result, as `--json` prints it.

    Raises:
        RequestError: Unknown model, split or family; a storage or study of something else.
        WorkFailed: No trial was completed.
    """
    check_signing_key()
    command_run.quieten()
    import mlflow

    training = search.training
    space_of(training.model)
    data = load_data(training)
    name = search.study or f"{training.model}-{training.split}-{data.digest[:12]}"
    lock_name = check_model_name(f"study.{name}")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna_study.open_storage(search.storage, mlflow.get_tracking_uri())
    client = connect()
    tags = {**source_tags(training, data), STUDY_TAG: name, command_run.COMMAND_TAG: "hpo"}
    with translated(f"begin study '{name}'"), locked(client, lock_name):
        study = _study(name, storage, training, data, search.options)
        run_id = _parent_run(client, study, training, tags)
    work = _Work(search, data, study, client, lock_name, tags)
    with command_run.tracked_run(name, tags, run_id):
        if result := _result(study, search.trials):
            return {**result, "trials": optuna_study.states(study)}
        _run_trials(work)
        return {**_best(work), "trials": optuna_study.states(study)}


def _study(
    name: str,
    storage: optuna.storages.BaseStorage,
    training: TrainingRequest,
    data: TrainingData,
    options: TrialOptions = TRIALS,
) -> optuna.Study:
    """The study, new or as it was left; called inside the lock."""
    study = optuna.create_study(
        storage=storage,
        study_name=name,
        sampler=optuna_study.SeededByTrial(training.seed),
        pruner=optuna_study.pruner(options),
        direction="maximize",
        load_if_exists=True,
    )
    asked = {**asdict(training), "records": data.digest, "family": data.family}
    asked["holdout"] = list(training.holdout)
    asked |= {FEATURES_TAG: FEATURES_VERSION, EVALUATION_TAG: evaluation_digest(data.test)}
    if optuna_study.attribute(study, _IDENTITY, _Name) is None:
        study.set_user_attr(_IDENTITY, uuid.uuid4().hex)
    begun_with = optuna_study.attribute(study, _REQUEST, dict[str, Json])
    if begun_with is None:
        study.set_user_attr(_REQUEST, asked)
    # Studies begun before a key was kept do not have it.
    elif other := sorted(
        key for key in asked if key in begun_with and asked[key] != begun_with[key]
    ):
        raise RequestError(
            f"study '{name}', which was begun with another {', '.join(other)}",
            "the same request, or another study",
            "choose another --study",
        )
    return study


def _parent_run(
    client: "MlflowClient",
    study: optuna.Study,
    training: TrainingRequest,
    tags: Mapping[str, str],
) -> str:
    """The run that the trials are nested under; `mlflow run` brings its own."""
    from mlflow.exceptions import MlflowException

    given_run = os.environ.get("MLFLOW_RUN_ID")
    recorded_run = optuna_study.attribute(study, _PARENT, _Name)
    if recorded_run and not given_run:
        try:
            if patiently(lambda: client.get_run(recorded_run)).info.lifecycle_stage == "active":
                return str(recorded_run)
        except MlflowException as error:
            if error_code(error) not in MISSING:  # the store is busy or away, not the run
                raise
        log.info("the study's run is gone from this tracking store: a new one is made")
    with command_run.tracked_run(study.study_name, tags) as run:
        if not given_run:
            command_run.log_resolved({**asdict(training), "study": study.study_name})
        study.set_user_attr(_PARENT, run.info.run_id)
        return str(run.info.run_id)


def _run_trials(work: _Work) -> None:
    """Runs trials until the total is reached and none runs elsewhere."""
    options = work.search.options
    watch = optuna_study.Watch(work.study, options.stale_s)
    with progress(work.search.trials, "trial") as at:
        while True:
            running = watch.sweep()
            trial = optuna_study.ask(work.study, work.search.trials)
            if trial is not None:
                _run_trial(work, trial)
            elif running:
                time.sleep(options.poll_s)
            else:
                return
            done = len(optuna_study.counted(work.study))
            at(done)
            if trial is not None and (best := optuna_study.best_value(work.study)) is not None:
                record(done, {BEST: best})


def _run_trial(work: _Work, trial: optuna.Trial) -> None:
    try:
        with _trial_run(work, trial) as run_id:
            value = _objective(work, trial, run_id)
            work.study.tell(trial, value)
    except optuna.TrialPruned:
        work.study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
        log.info("trial %d: pruned", trial.number)
    except Exception as error:
        with suppress(UpdateFinishedTrialError):  # another worker gave it up meanwhile
            trial.set_user_attr(optuna_study.REASON, f"{type(error).__name__}: {error}")
            work.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
        log.warning("trial %d failed: %s", trial.number, error)
    except BaseException:
        optuna_study.discard(work.study, trial, "interrupted")
        raise
    else:
        log.info("trial %d: %s %.4f", trial.number, VALUE, value)


@contextmanager
def _trial_run(work: _Work, trial: optuna.Trial) -> Iterator[str]:
    """The trial's own run, under the study's, with the reason where it does not end well."""
    import mlflow

    tags = {**work.tags, TRIAL_TAG: str(trial.number)}
    pruned: optuna.TrialPruned | None = None
    with command_run.nested_run(f"trial {trial.number}", tags) as run:
        try:
            yield run.info.run_id
        except optuna.TrialPruned as error:
            pruned = error  # a pruned trial is no failed run
            mlflow.set_tag("state", "pruned")
        except Exception as error:
            mlflow.set_tags({"state": "failed", "reason": f"{type(error).__name__}: {error}"})
            raise
        else:
            mlflow.set_tag("state", "complete")
    if pruned is not None:
        raise pruned


def _objective(work: _Work, trial: optuna.Trial, run_id: str) -> float:
    """PCA on the valid side of a model with the trial's hyperparameters."""
    import mlflow

    training, data = work.search.training, work.data
    space = space_of(training.model, training.effort)
    values = {name: optuna_study.suggest(trial, name, at) for name, at in space.items()}
    mlflow.log_params(values)
    dataset = command_run.log_records(data.store.path, data.digest, "training")
    curve = Curve(run_id)

    def on_epoch(epoch: int, figures: dict[str, float]) -> None:
        curve.add(epoch, figures)
        if epoch % work.search.options.report_rounds == 0:
            trial.report(figures[VALUE], epoch)
            if trial.should_prune():
                raise optuna.TrialPruned

    model = build(training.model, training.effort, training.seed, values)
    try:
        model.fit(data.train, data.valid, on_epoch)
    finally:  # a trial that is pruned has a curve, too
        curve.log()
    value = _valid_pca(model, data)
    # After the curve, whose last point has the same step: the model is that of its best epoch.
    command_run.log_final({VALUE: value}, None, dataset, curve.last_step)
    return value


def _valid_pca(model: CostModel, data: TrainingData) -> float:
    valid = data.valid
    scores = model.predict(valid.batch)
    return pairwise_accuracy(scores, valid.latency_s, group_codes(valid)[0]).value


def _best(work: _Work) -> dict[str, Any]:
    """The best trial, trained again and registered by one of the workers."""
    waited_until = time.monotonic() + work.search.options.claim_stale_s
    while True:
        with locked(work.client, work.lock_name):
            claim = work.study.user_attrs.get(_CLAIM, "")
            if result := _result(work.study, work.search.trials):
                return result
            waited = time.monotonic() > waited_until and not process.is_here(claim)
            mine = not process.is_described(claim) or process.is_gone(claim) or waited
            if mine:
                work.study.set_user_attr(_CLAIM, process.describe())
        if mine:
            break
        time.sleep(work.search.options.poll_s)
    try:
        best = optuna_study.best_trial(work.study)
        earlier = optuna_study.attribute(work.study, _RESULT, _Result)
        if earlier and earlier.best.number == best.number:  # no second version of one model
            result = {**earlier.model_dump(), "total": work.search.trials}
        else:
            result = _train_best(work, best)
        work.study.set_user_attr(_RESULT, result)
        return result
    finally:
        work.study.set_user_attr(_CLAIM, "")


def _train_best(work: _Work, best: FrozenTrial) -> dict[str, Any]:
    import mlflow

    training = work.search.training
    tags = {
        **work.tags,
        TRIAL_TAG: str(best.number),
        IDENTITY_TAG: optuna_study.attribute(work.study, _IDENTITY, _Name),
    }
    trained = _registered(work, tags)
    if trained is None:
        model = build(training.model, training.effort, training.seed, best.params)
        with command_run.nested_run(f"best of {work.study.study_name}", tags) as run:
            trained = fit_and_register(run.info.run_id, training, work.data, model, tags)
    # Nested runs are hard to find among many: the summary is on the parent.
    mlflow.log_metrics({f"best.{VALUE}": best.value or 0.0, **trained["metrics"]})
    command_run.log_deciding({key: trained["metrics"][key] for key in DECIDING_METRICS})
    mlflow.set_tag("best_trial", str(best.number))
    return {
        "study": work.study.study_name,
        "total": work.search.trials,
        "best": {"number": best.number, "params": best.params, "value": best.value},
        **{key: trained[key] for key in ("run_id", "model", "version", "metrics")},
        "dataset_digest": trained["dataset_digest"],
    }


def _registered(work: _Work, tags: dict[str, str]) -> dict[str, Any] | None:
    """What a worker registered that was gone before it could write the study's result."""
    name = cost_model_name(work.data.family)
    same = [condition(f"tags.{key}", tags[key]) for key in (IDENTITY_TAG, TRIAL_TAG)]
    for registered in search_versions(work.client, condition("name", name), *same):
        version = Version.of(registered)
        if version.run_id:
            work.client.set_terminated(version.run_id)
        return {
            "run_id": version.run_id,
            "model": name,
            "version": version.version,
            "metrics": {key: figure(work.client, version, key) for key in MAIN_METRICS},
            "dataset_digest": work.data.digest,
        }
    return None


def _result(study: optuna.Study, trials: int) -> dict[str, Any] | None:
    """What was registered when the study had this total, if it was."""
    result = optuna_study.attribute(study, _RESULT, _Result)
    return result.model_dump() if result and result.total >= trials else None
