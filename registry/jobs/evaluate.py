"""Judges a stored model on a record store."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetfeat.dataset.store import RecordStore
from hetfeat.deploy.runtime import PUBLIC_KEY
from hetfeat.errors import DataError, RequestError
from hetfeat.features.batch import Examples
from hetfeat.features.cluster import assembled_of
from hetfeat.models.base import CostModel
from hetfeat.models.evaluate import Evaluation, evaluate
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import by_group, pairwise_accuracy, rmse
from hetfeat.models.persist import HEAD
from hetfeat.models.registry import load_model
from registry.files.manifest import check_manifest
from registry.files.pull import pull
from registry.models.mlflow_client import condition, connect, translated
from registry.models.signatures import check_signature
from registry.models.version import MANIFEST_TAG, Version
from registry.models.versions import search_versions
from registry.tracking.cost_model_flavor import refuse_without_stores

if TYPE_CHECKING:
    from distributed import Client


def evaluate_stored(
    uri_or_folder: str,
    records: Path,
    device: str | None,
    per_task: bool,
    seed: int,
    unrecorded: bool = False,
    cluster: "Client | None" = None,
) -> dict[str, Any]:
    """Does the whole of `hetfeat evaluate`.

    Every record of the store counts, also those that the model was trained on: how many those
    are is `seen_records`. The baselines are calibrated on the records themselves.

    Args:
        uri_or_folder: URI of a version, or a model's folder.
        records: Folder of the record store.
        device: Name of the only device whose records count, or None for all.
        per_task: Whether to give each task's figures, too.
        seed: Seed of ties and of the random baseline.
        unrecorded: Whether to follow an alias to where no promotion put it, too; default False.
        cluster: Client of a cluster that computes features and scores; default None for here.

    Returns:
        The figures, as `--json` prints them.

    Raises:
        RequestError: No such model, records or device.
    """
    store = RecordStore.open(records)
    _check_device(store, device)
    devices = None if device is None else [device]
    with store.undisturbed() as digest:
        examples = assembled_of(store, cluster, devices).examples
    uri, model = _load(uri_or_folder, unrecorded)
    refuse_without_stores(model, examples, uri)
    none = examples.take(np.empty(0, np.int64))
    judged = evaluate(model, none, examples, examples, store.networks(), seed)
    result = {
        "model": uri,
        "metrics": judged.metrics,
        "baselines": judged.baselines,
        "records": len(examples),
        "seen_records": _seen(model, examples),
        "devices": sorted(set(examples.device.tolist())),
        "dataset_digest": digest,
    }
    return {**result, "tasks": _tasks(model, examples, judged)} if per_task else result


def _load(uri_or_folder: str, unrecorded: bool) -> tuple[str, CostModel]:
    if (Path(uri_or_folder) / HEAD).is_file():
        _check_signed(Path(uri_or_folder))
        return uri_or_folder, load_model(Path(uri_or_folder))
    if Path(uri_or_folder).is_dir() or ("/" not in uri_or_folder and "@" not in uri_or_folder):
        raise RequestError(
            f"--model '{uri_or_folder}'",
            f"a model's folder (with {HEAD}) or models:/NAME/VERSION",
            "`hetfeat pull NAME --out DIR` makes one",
        )
    pulled = pull(uri_or_folder, unrecorded=unrecorded)
    return pulled.version.uri, load_model(pulled.folder)


def _check_signed(folder: Path) -> None:
    """Refuses a folder, where a public key is configured, unless it signed a version of it."""
    if not os.environ.get(PUBLIC_KEY):
        return
    digest = check_manifest(folder)
    with translated(f"look up who signed '{folder}'"):
        same = [*search_versions(connect(), condition(f"tags.{MANIFEST_TAG}", digest))]
    refused = DataError(
        f"'{folder}', whose files no version has",
        f"files signed by the key of {os.environ[PUBLIC_KEY]}",
        f"evaluate models:/NAME/VERSION, or unset {PUBLIC_KEY}",
    )
    for version in same:
        try:
            check_signature(Version.of(version), digest)
        except DataError as error:
            refused = error
        else:
            return
    raise refused


def _check_device(store: RecordStore, device: str | None) -> None:
    devices = sorted(store.measured_devices())
    if device is not None and device not in devices:
        raise RequestError(
            f"device '{device}'",
            f"a device of the records ({', '.join(devices)})",
            "correct --device or leave it out",
        )


def _seen(model: CostModel, examples: Examples) -> int:
    """Records that the model learnt from, of tasks and devices that are judged here."""
    pairs = set(zip(examples.device.tolist(), examples.task.tolist(), strict=True))
    return sum(model.seen.get(device, {}).get(task, 0) for device, task in pairs)


def _tasks(model: CostModel, examples: Examples, judged: Evaluation) -> list[dict[str, Any]]:
    groups, keys = group_codes(examples)
    scores = model.predict(examples.batch)
    rows = []
    for members in by_group(groups):
        device, task = keys[groups[members[0]]]
        pairs = pairwise_accuracy(scores[members], examples.latency_s[members], groups[members])
        rows.append(
            {
                "task": task,
                "device": device,
                "operator": examples.operator[members[0]],
                "programs": len(members),
                "pca": pairs.value,
                "pairs": pairs.pairs,
                "rmse": rmse(judged.estimate[members], judged.y[members]),
            }
        )
    return rows
