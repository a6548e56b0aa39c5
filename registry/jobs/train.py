"""Trains a cost model on a record store, judges it, logs it and registers it."""

import hashlib
import logging
import time
from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.sidecar_files import evaluation_tasks
from hetfeat.dataset.splits import TENSET, split_as_tenset, split_examples
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.families import common_family, devices_of_family
from hetfeat.features.assemble import no_records
from hetfeat.features.batch import Examples
from hetfeat.features.cluster import assembled_of
from hetfeat.features.columns import FEATURES_VERSION
from hetfeat.models.base import CostModel
from hetfeat.models.evaluate import Evaluation, evaluate
from hetfeat.models.hyperparameters import build
from hetfeat.models.permutation import permutation_importance
from hetfeat.models.pruned import kept_by_pruning
from hetfeat.models.settings import as_text, changed
from hetfeat.progress import progress
from hetfeat.report import figures
from registry.models.names import cost_model_name
from registry.models.signatures import check_signing_key
from registry.models.version import (
    COMPARISON_TAG,
    DATASET_TAG,
    EVALUATION_TAG,
    FEATURES_TAG,
    Version,
)
from registry.models.versions import metric_tags, register
from registry.tracking import command_run
from registry.tracking.cost_model_flavor import input_example, log_cost_model
from registry.tracking.environment_tags import peak_memory_bytes
from registry.tracking.live import Curve

if TYPE_CHECKING:
    from distributed import Client

log = logging.getLogger(__name__)

MAIN_METRICS = ("pca", "rmse", "r2", "top1", "top5")
DECIDING_METRICS = ("pca", "rmse", "top1")
SPLIT_SEED = 0
"""Seed of every split of a store, whatever the model's: its versions are then comparable."""
EVALUATION = "evaluation"
"""Holdout that holds out the store's evaluation tasks, as if they were a network: by_task's
default."""


@dataclass(frozen=True)
class TrainingRequest:
    """What `hetfeat train` was asked for.

    Attributes:
        records: Record store, or None for the packaged one of the family.
        family: Family or union, or None for that of the records.
        model: Name in `models.registry.MODELS`.
        split: Name in `dataset.splits.SPLITS`; `train_as_tenset` reads none.
        holdout: Devices or networks to test on.
        effort: `quick`, `standard` or `full`.
        seed: Seed of the model.
        pruned: Whether the training side is pruned, default False; the other sides are the same
            either way.
        settings: Hyperparameters of the model that are not those of its effort; default none.
    """

    records: Path | None
    family: str | None
    model: str
    split: str
    holdout: tuple[str, ...]
    effort: str
    seed: int
    pruned: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingData:
    """Records, divided; `whole` is the training side before any pruning."""

    store: RecordStore
    digest: str
    family: str
    train: Examples
    valid: Examples
    test: Examples
    whole: Examples

    @property
    def facts(self) -> dict[str, Any]:
        """Sizes and names, for parameters and tags."""
        parts = (self.train, self.valid, self.test)
        devices = sorted({device for part in parts for device in part.device.tolist()})
        sizes = {f"{name}_records": len(part) for name, part in zip(_SIDES, parts, strict=True)}
        tasks = {task for part in parts for task in part.task.tolist()}
        return {"devices": ",".join(devices), "tasks": len(tasks), **sizes}


_SIDES = ("train", "valid", "test")


@dataclass(frozen=True)
class _Fit:
    """How a model was fitted: its learning curve, seconds by the clock and of processors."""

    curve: Curve
    train_s: float
    cpu_s: float

    @property
    def figures(self) -> dict[str, float]:
        """What it took; MLflow samples the machine, and a run of a second not at all."""
        return {
            "train_s": self.train_s,
            "system.cpu_s": self.cpu_s,
            "system.peak_memory_mb": peak_memory_bytes() / 1e6,
        }


def train_and_register(request: TrainingRequest, cluster: "Client | None" = None) -> dict[str, Any]:
    """Does the whole of `hetfeat train`.

    The version registered is the model that was evaluated: the test side took no part in it, the
    valid side only in stopping and calibration. Nothing is logged before the data and the
    request have been found sound.

    Args:
        request: Request that the command was given.
        cluster: Client of a cluster that computes features and grows trees; default None for here.

    Returns:
        The result, as `--json` prints it.

    Raises:
        RequestError: Unknown model, split, family or holdout.
        DataError: Records that are missing, damaged or too few.
    """
    check_signing_key()
    model = build(request.model, request.effort, request.seed, request.settings)
    data = load_data(request, cluster=cluster)
    name = command_run.run_name(
        *("train", request.model, request.split, data.family),
        holdout=request.holdout,
        pruned=request.pruned,
        effort=request.effort,
        seed=request.seed,
        set=tuple(f"{key}={value}" for key, value in request.settings.items()),
    )
    with command_run.tracked_run(name, {}) as run:
        return fit_and_register(run.info.run_id, request, data, model)


def train_as_tenset(request: TrainingRequest) -> None:
    """Trains and logs a run by TenSet's protocol; registers nothing.

    Such a model was stopped by what it was tested on: its figures are for the report alone.

    Args:
        request: Request as for `train_and_register`, whose split is taken for TenSet's.

    Raises:
        RequestError: Unknown model or family.
        DataError: Records that are missing, damaged or too few.
    """
    import mlflow

    request = replace(request, split=TENSET)
    model = build(request.model, request.effort, request.seed, request.settings)
    data = load_data(request, as_tenset=True)
    with command_run.tracked_run(f"train {request.model} {TENSET}", {}) as run:
        mlflow.set_tags(source_tags(request, data))
        fit = _fit(run.info.run_id, model, data)
        judged = evaluate(model, data.whole, data.valid, data.test, seed=request.seed)
        _log_settings(request, data, model)
        dataset = command_run.log_records(data.store.path, data.digest, "training")
        command_run.log_final({**judged.metrics, **fit.figures}, None, dataset)


def fit_and_register(
    run_id: str,
    request: TrainingRequest,
    data: TrainingData,
    model: CostModel,
    extra_tags: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Fits, judges, logs and registers a model, all in the active run.

    Args:
        run_id: Id of the active run.
        request: Request that the command was given.
        data: Divided records from `load_data`.
        model: Model that is not trained yet.
        extra_tags: Tags of the run and the version beside the usual ones, default None.

    Returns:
        The result, as `hetfeat train --json` prints it.
    """
    import mlflow

    name = cost_model_name(data.family)
    tags = source_tags(request, data)
    tags |= {COMPARISON_TAG: _comparison_of(tags), **(extra_tags or {})}
    mlflow.set_tags(tags)
    fit = _fit(run_id, model, data)
    judged = evaluate(model, data.whole, data.valid, data.test, data.store.networks(), request.seed)
    _log_settings(request, data, model)
    version = _log_results(run_id, name, data, model, judged, fit, tags)
    return {
        "run_id": run_id,
        "model": name,
        "version": version.version,
        "metrics": {key: judged.metrics[key] for key in MAIN_METRICS},
        "details": {k: v for k, v in judged.metrics.items() if k not in MAIN_METRICS},
        "baselines": judged.baselines,
        "train_s": fit.train_s,
        "dataset_digest": data.digest,
        **data.facts,
    }


def source_tags(request: TrainingRequest, data: TrainingData) -> dict[str, str]:
    """What a source version and its run are told apart by."""
    return {
        "family": data.family,
        "devices": data.facts["devices"],
        "split": request.split,
        "model": request.model,
        FEATURES_TAG: str(FEATURES_VERSION),
        DATASET_TAG: data.digest,
        EVALUATION_TAG: evaluation_digest(data.test),
    }


def _comparison_of(tags: Mapping[str, str]) -> str:
    """Short digest of what two trainings must share for their figures to compare."""
    shared = "\n".join(tags[key] for key in ("split", DATASET_TAG, EVALUATION_TAG))
    return hashlib.sha256(shared.encode()).hexdigest()[:12]


def load_data(
    request: TrainingRequest, *, as_tenset: bool = False, cluster: "Client | None" = None
) -> TrainingData:
    """Reads the records of a request and divides them.

    Args:
        request: Request that the command was given.
        as_tenset: Whether to divide them as TenSet does, whatever the request's split; default
            False.
        cluster: Client of a cluster whose workers keep the features; default None for here.

    Raises:
        RequestError: Unknown split, family or holdout.
        DataError: Records that are missing, damaged or too few.
    """
    store = RecordStore.open(request.records or packaged_store(request.family))
    log.info("reading %s", store.path)
    if not (measured := store.measured_devices()):
        raise no_records(store)
    profiles = {name: p for name, p in store.devices().items() if name in measured}
    family = request.family or common_family(profiles)
    devices = devices_of_family(profiles, family)
    with store.undisturbed() as digest:
        assembled = assembled_of(store, cluster, devices)
    if assembled.without_features or assembled.duplicates:
        log.info(
            "left out: %d records without features, %d older duplicates",
            assembled.without_features,
            assembled.duplicates,
        )
    examples = assembled.examples
    if lost := sorted(set(devices) - set(examples.device.tolist())):
        log.warning("no record of %s has per-store features: they are left out", ", ".join(lost))
    networks, holdout = store.networks(), request.holdout
    dense = set(evaluation_tasks(store.path)) & set(examples.task.tolist())
    if request.split == "by_task" and not holdout and dense:
        networks[EVALUATION] = dict.fromkeys(dense, 1)
        holdout = (EVALUATION,)
    if as_tenset:
        split = split_as_tenset(examples, SPLIT_SEED)
    else:
        split = split_examples(examples, request.split, SPLIT_SEED, holdout, networks)
    whole, valid, test = (examples.take(getattr(split, side)) for side in _SIDES)
    train = whole.take(kept_by_pruning(whole, seed=SPLIT_SEED)) if request.pruned else whole
    return TrainingData(store, digest, family, train, valid, test, whole)


def evaluation_digest(test: Examples) -> str:
    """Digest of what was tested on: figures of two versions compare where it is the same."""
    columns = [column.tolist() for column in (test.device, test.program, test.latency_s)]
    # Rows are texts in order; only those that begin alike are in memory at once.
    parts: dict[str, array[int]] = defaultdict(lambda: array("q"))
    for row, (device, program) in enumerate(zip(*columns[:2], strict=True)):
        parts[f"({device!r}, {program!r:.3}"].append(row)
    digest, between = hashlib.sha256(), b""
    for _, rows in sorted(parts.items()):
        texts = sorted(repr(tuple(column[row] for column in columns)) for row in rows)
        digest.update(between + "\n".join(texts).encode())
        between = b"\n"
    return digest.hexdigest()


def _fit(run_id: str, model: CostModel, data: TrainingData) -> _Fit:
    """Fits a model; its learning curve is logged meanwhile."""
    curve = Curve(run_id)
    log.info(
        "training on %d records, %d held out", len(data.train), len(data.valid) + len(data.test)
    )
    start, cpu_start = time.perf_counter(), time.process_time()
    with progress(model.parameters["rounds"], "round") as at:

        def on_epoch(epoch: int, values: dict[str, float]) -> None:
            curve.add(epoch, values)
            at(epoch + 1)

        model.fit(data.train, data.valid, on_epoch)
    curve.log()
    fit = _Fit(curve, time.perf_counter() - start, time.process_time() - cpu_start)
    model.learn_unapplied_traces(data.train, data.valid)
    return fit


def _log_settings(request: TrainingRequest, data: TrainingData, model: CostModel) -> None:
    """Logs what the run was asked for; hyperparameters as parameters where they are its own."""
    import mlflow

    own = changed(request.model, request.effort, model)
    command_run.log_resolved(
        {
            "records": data.store.path,
            "family": data.family,
            "model": request.model,
            "split": request.split,
            "holdout": ",".join(request.holdout),
            "pruned": request.pruned,
            "effort": request.effort,
            "seed": request.seed,
            "set": as_text(own),
            **data.facts,
        }
    )
    mlflow.log_params({f"model.{key}": value for key, value in own.items()})
    mlflow.log_dict(dict(model.parameters), "model_parameters.json")


def _log_results(
    run_id: str,
    name: str,
    data: TrainingData,
    model: CostModel,
    judged: Evaluation,
    fit: _Fit,
    tags: Mapping[str, str],
) -> Version:
    import mlflow

    step = fit.curve.last_step  # MLflow gives the model what the curve has there
    info, manifest_sha256 = log_cost_model(model, input_example(data.store), step, tags)
    dataset = command_run.log_records(data.store.path, data.digest, "training")
    # A cost model of another package may have chosen nothing.
    final = {**judged.metrics, **fit.figures, **getattr(model, "chosen", {})}
    command_run.log_final(final, info.model_id, dataset)
    command_run.log_deciding({key: judged.metrics[key] for key in DECIDING_METRICS})
    compared = {tags["model"]: judged.metrics, **judged.baselines}
    columns = {key: [row[key] for row in compared.values()] for key in MAIN_METRICS}
    command_run.log_table({"model": list(compared), **columns}, "tables/baselines.json")
    mlflow.log_figure(figures.learning_curve(fit.curve.points), "figures/learning_curve.png")
    mlflow.log_figure(
        figures.predicted_against_measured(judged.y, judged.estimate),
        "figures/predicted_against_measured.png",
    )
    mlflow.log_figure(
        figures.error_by_operator(judged.operator_rmse), "figures/error_by_operator.png"
    )
    gains = model.importance()
    if worth := gains or permutation_importance(model, data.valid):
        what = "gain" if gains else "fall of PCA, each column shuffled alone"
        mlflow.log_figure(figures.importance(worth, what), "figures/importance.png")
    kept = {**tags, **metric_tags({key: judged.metrics[key] for key in MAIN_METRICS})}
    return register(name, info, folder_manifest_sha256=manifest_sha256, tags=kept, run_id=run_id)
