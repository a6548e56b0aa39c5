"""Adapts a registered model to a device, and registers what helps as a child of its source."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetfeat.cluster import builders_at, connected
from hetfeat.dataset.splits import anchors
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError, RequestError
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Examples
from hetfeat.features.columns import FEATURES_VERSION
from hetfeat.features.out_of_core import room_bytes
from hetfeat.models.base import CostModel
from hetfeat.models.evaluate import Evaluation, evaluate
from hetfeat.models.labels import leaked_records
from hetfeat.models.persist import read_head
from hetfeat.models.registry import load_model
from hetfeat.progress import progress
from hetfeat.transfer.finetune import Adapted, FewShot, adapt, check_budget
from hetfeat.transfer.joint import refuse_no_trees
from hetfeat.transfer.selection import on_columns
from registry.files.pull import Pulled, pull
from registry.jobs.train import MAIN_METRICS, evaluation_digest
from registry.jobs.transfer_records import (
    DeviceRecords,
    Division,
    LiveMeasurement,
    ReplayedRecords,
    kept_folder,
)
from registry.models.names import cost_model_name
from registry.models.signatures import check_signing_key
from registry.models.version import (
    DATASET_TAG,
    EVALUATION_TAG,
    FEATURES_TAG,
    LIVE_STAGES,
    PARENT_TAG,
)
from registry.models.versions import metric_tags, register
from registry.tracking import command_run
from registry.tracking.cost_model_flavor import input_example, log_cost_model, refuse_without_stores

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Transfer:
    """What `hetfeat transfer` was asked for.

    Attributes:
        source: Version to start from, or None for the family's production or staging version.
        device: Name of the device to adapt to.
        records: Record store of the device, to replay; None measures now.
        source_records: Record store that the source learnt from, for one training of these and of
            what is measured; None only fine-tunes.
        network: Names of the networks whose tasks are measured.
        budget_per_task: Number of measurements of each task to learn from.
        flops_share: Share of all FLOPs that the measured tasks hold together.
        fine_tune_columns: Number of feature columns, the most important ones, that fine-tuning
            uses; 0 for all.
        out: Record store for what is measured now; None keeps nothing.
        seed: Seed of the choice of measurements and of training.
        unrecorded: Whether to follow an alias to where no promotion put it, too; default False.
        effort: Effort of the model from scratch that the transfer is compared with; default
            `standard`.
        builders: Address of the Dask cluster that builds programs; default None for none.
    """

    source: str | None
    device: str
    records: Path | None
    source_records: Path | None
    network: tuple[str, ...]
    budget_per_task: int
    flops_share: float
    fine_tune_columns: int
    out: Path | None
    seed: int
    unrecorded: bool = False
    effort: str = "standard"
    builders: str | None = None


def transfer_and_register(wanted: Transfer) -> dict[str, Any]:
    """Does the whole of `hetfeat transfer`.

    A source that does not help is dropped: that is an answer, not a failure. Nothing is
    registered then; the device is served by the family's model, or by one trained on its records.

    Returns:
        The result, as `--json` prints it.

    Raises:
        RequestError: No such source or device, or too few records.
    """
    import mlflow

    check_signing_key()
    with _device_records(wanted) as records:
        profile = records.profile
        # A request that is wrong measures nothing and leaves no run behind.
        check_budget(wanted.budget_per_task)
        source = _source(wanted.source, profile, wanted.unrecorded)
        model = load_model(source.folder)
        taught = _taught(wanted.source_records, model, profile)
        if wanted.fine_tune_columns:
            model = on_columns(model, wanted.fine_tune_columns)
        tags = {
            "family": profile.family,
            "device": profile.name,
            "devices": profile.name,
            "split": "few_shot",
            "model": read_head(source.folder)["model"],
            FEATURES_TAG: str(FEATURES_VERSION),
        }

        def check(data: FewShot) -> None:
            refuse_without_stores(model, data.measured, source.version.uri)

        records.prepare(check)
        name = command_run.run_name(
            *("transfer", tags["model"], profile.name),
            network=wanted.network,
            budget=wanted.budget_per_task,
            seed=wanted.seed,
        )
        with command_run.tracked_run(name, tags) as run:
            command_run.log_source_model(source.version)
            divided = records.divide(check)
            tags |= {DATASET_TAG: divided.dataset_digest}
            mlflow.set_tags(tags)
            data, run_id = divided.data, run.info.run_id
            return _transfer(
                wanted, source, model, taught, profile, records.store, data, run_id, tags
            )


@contextmanager
def _device_records(wanted: Transfer) -> Iterator[DeviceRecords]:
    """Recorded ones where they are given, else those that are measured."""
    division = Division(wanted.budget_per_task, wanted.flops_share, wanted.seed)
    if wanted.records is not None:
        yield ReplayedRecords(wanted.records, wanted.device, division)
        return
    builders = connected(builders_at(wanted.builders))
    with builders as cluster, kept_folder(wanted.out) as out:
        yield LiveMeasurement(wanted.device, wanted.network, out, division, cluster)


def _transfer(
    wanted: Transfer,
    source: Pulled,
    model: CostModel,
    taught: Examples | None,
    profile: DeviceProfile,
    store: RecordStore,
    data: FewShot,
    run_id: str,
    tags: dict[str, str],
) -> dict[str, Any]:
    import mlflow

    leaked = leaked_records(model, profile.name, [*data.test.task, *anchors(data.test)])
    if leaked:
        log.warning(
            "%s was trained on %d records of these tasks on %s: its figures are no transfer",
            *(source.version.uri, leaked, profile.name),
        )
    log.info("learning from %d records, testing on %d", len(data.measured), len(data.test))
    with progress(data.folds, "fold") as at:
        adapted = adapt(model, tags["model"], data, wanted.effort, wanted.seed, at, taught=taught)
    judged = evaluate(
        adapted.model, data.measured, data.measured, data.test, store.networks(), wanted.seed
    )
    figures = {f"pca_{name}": value for name, value in adapted.pca.items()}
    log.info("source %s: %s", adapted.decision.gate, adapted.decision.reason)
    tags |= {
        EVALUATION_TAG: evaluation_digest(data.test),
        "gate": adapted.decision.gate,
        "transfer_way": adapted.way,
        "fine_tune_rounds": str(adapted.rounds),
        "budget_per_task": str(wanted.budget_per_task),
        "measured": str(len(data.measured)),
        "leaked_records": str(leaked),
    }
    mlflow.set_tags({**tags, PARENT_TAG: source.version.uri, "reason": adapted.decision.reason})
    _log_settings(wanted, source, profile, store, data)
    version = _log(adapted, judged, figures, source, profile, store, run_id, tags)
    return {
        **figures,
        "measured": len(data.measured),
        "test_records": len(data.test),
        "gate": adapted.decision.gate,
        "reason": adapted.decision.reason,
        "transfer_way": adapted.way,
        "fine_tune_rounds": adapted.rounds,
        "model": version and cost_model_name(profile.family, profile.name),
        "version": version,
        "source": source.version.uri,
        "device": profile.name,
        "leaked_records": leaked,
        "metrics": {key: judged.metrics[key] for key in MAIN_METRICS},
        "dataset_digest": tags[DATASET_TAG],
        "run_id": run_id,
    }


def _taught(path: Path | None, source: CostModel, profile: DeviceProfile) -> Examples | None:
    """Records of other devices of the family, to be learnt together with what is measured.

    Raises:
        RequestError: The source is no model of trees, or there are no such records.
    """
    if path is None:
        return None
    refuse_no_trees(source)
    store = RecordStore.open(path)
    others = [
        name
        for name, own in store.devices().items()
        if own.family == profile.family and name != profile.name
    ]
    if not others:
        raise RequestError(
            f"--source-records '{path}'",
            f"records of another device of family {profile.family}",
            "correct --source-records, or leave it out",
        )
    return assemble(store, room_bytes=room_bytes(), devices=others).examples


def _log_settings(
    wanted: Transfer, source: Pulled, profile: DeviceProfile, store: RecordStore, data: FewShot
) -> None:
    command_run.log_resolved(
        {
            "source": source.version.uri,
            "device": profile.name,
            "records": store.path if wanted.records or wanted.out else "measured, not kept",
            "source_records": wanted.source_records or "none",
            "budget_per_task": wanted.budget_per_task,
            "flops_share": wanted.flops_share,
            "fine_tune_columns": wanted.fine_tune_columns,
            "seed": wanted.seed,
            "measured": len(data.measured),
            "test_records": len(data.test),
        }
    )


def _log(
    adapted: Adapted,
    judged: Evaluation,
    figures: dict[str, float],
    source: Pulled,
    profile: DeviceProfile,
    store: RecordStore,
    run_id: str,
    tags: dict[str, str],
) -> int | None:
    """Logs figures and, if the source was kept, the model; returns the version's number."""
    dataset = command_run.log_records(store.path, tags[DATASET_TAG], "transfer")
    command_run.log_deciding(figures)
    if not adapted.decision.kept:  # the other metrics are those of a model that is dropped
        command_run.log_final(figures, None, dataset)
        return None
    info, manifest_sha256 = log_cost_model(adapted.model, input_example(store), 0, tags)
    command_run.log_final({**judged.metrics, **figures}, info.model_id, dataset)
    kept = {**tags, **metric_tags({key: judged.metrics[key] for key in MAIN_METRICS} | figures)}
    return register(
        cost_model_name(profile.family, profile.name),
        info,
        folder_manifest_sha256=manifest_sha256,
        tags=kept,
        run_id=run_id,
        parent_uri=source.version.uri,
    ).version


def _source(given: str | None, profile: DeviceProfile, unrecorded: bool) -> Pulled:
    """The version to start from: by default the family's, in production, else in staging."""
    if given:
        return pull(given, unrecorded=unrecorded)
    name = cost_model_name(profile.family)
    for stage in reversed(LIVE_STAGES):
        try:
            return pull(name, stage, unrecorded=unrecorded)
        except DataError:
            raise
        except RequestError as error:
            missing = error
    raise missing
