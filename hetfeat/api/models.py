"""Cost models of the Python API: trained, loaded, or the one that comes with the package."""

import hashlib
import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hetfeat.dataset.splits import split_examples
from hetfeat.dataset.store import RecordStore
from hetfeat.deploy.request import SourceModel
from hetfeat.devices.families import common_family, devices_of_family
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError, RequestError
from hetfeat.features.assemble import assemble, no_records
from hetfeat.features.out_of_core import room_bytes
from hetfeat.models.base import CostModel
from hetfeat.models.hyperparameters import build
from hetfeat.models.packaged import packaged_model
from hetfeat.models.persist import HEAD
from hetfeat.models.registry import load_model as load_any
from hetfeat.progress import OnProgress, progress, reported_to

log = logging.getLogger(__name__)

FROM_SCRATCH = "none"
"""Word given instead of a model to tune without one."""
_SEED = 0
_SPLIT_OF_FEW_TASKS = "within_task"
"""Split of records that are of too few tasks to leave some out."""


def load_model(folder: Path | str) -> CostModel:
    """The cost model of a folder that `save`, or `hetfeat pull --out`, has written.

    Args:
        folder: Folder of the model. Its files are checked against their digests; nothing is
            unpickled.

    Raises:
        DataError: The folder is not a model, is damaged, or is of other features.

    Examples:
        >>> import hetfeat
        >>> try:
        ...     hetfeat.load_model("no-such-folder")
        ... except hetfeat.HetfeatError as error:
        ...     print(error.given)
        'no-such-folder'
    """
    return load_any(Path(folder))


def train_cost_model(
    records: RecordStore | Path | str,
    model: str = "xgb",
    *,
    family: str | None = None,
    effort: str = "standard",
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> CostModel:
    """Learns from measured programs how fast others will be.

    A tenth of the tasks decides when to stop and calibrates; `valid_pca` is of them. Nothing is
    held out for a test: `hetfeat train` and `registry.train` do that, and register the model.

    Args:
        records: A record store, or its folder.
        model: Kind of model: `xgb`, `lgbm`, `mlp`, `attention`, or a plug-in's; default `xgb`.
        family: Family of devices (`cpu-x86`) or union (`cpu`) to learn from; default None for that
            of all devices of the records.
        effort: `quick`, `standard` or `full`: rounds of training at most; default `standard`.
        seed: Seed of training, default 0.
        settings: Hyperparameters that are not those of the effort, by name; default None.
        on_progress: Callable that is told of each round, default None.

    Raises:
        RequestError: No such kind, family, effort or hyperparameter, or records of CPUs and GPUs
            together.
        DataError: Records that are missing, damaged or too few.

    Examples:
        >>> import hetfeat
        >>> records = hetfeat.RecordStore.open("records")
        >>> model = hetfeat.train_cost_model(records, model="xgb", effort="quick")
        >>> 0.5 < model.valid_pca <= 1
        True
    """
    store = records if isinstance(records, RecordStore) else RecordStore.open(records)
    untrained = _untrained(model, effort, seed, settings or {})
    with reported_to(on_progress):
        return _trained(store, untrained, family)


def _untrained(model: str, effort: str, seed: int, settings: Mapping[str, Any]) -> CostModel:
    efforts = ("quick", "standard", "full")
    if effort not in efforts:
        raise RequestError(f"effort '{effort}'", f"one of {', '.join(efforts)}", "choose one")
    try:
        return build(model, effort, seed, settings)
    except TypeError as error:  # of `dataclasses.replace`, which names it
        raise RequestError(
            f"settings of model '{model}' ({error})", "its hyperparameters", "correct them"
        ) from error


def _trained(store: RecordStore, model: CostModel, family: str | None) -> CostModel:
    measured = store.measured_devices()
    if not measured:
        raise no_records(store)
    profiles = {name: p for name, p in store.devices().items() if name in measured}
    devices = devices_of_family(profiles, family or common_family(profiles))
    with store.undisturbed():
        examples = assemble(store, room_bytes=room_bytes(), devices=devices).examples
    try:
        split = split_examples(examples, "by_task", _SEED)
    except DataError:  # too few tasks
        split = split_examples(examples, _SPLIT_OF_FEW_TASKS, _SEED)
    valid = examples.take(split.valid)
    train = examples.take(np.sort(np.concatenate([split.train, split.test])))
    with progress(model.parameters["rounds"], "round") as at:
        model.fit(train, valid, lambda epoch, _: at(epoch + 1))
    model.learn_unapplied_traces(train, valid)
    return model


def source_model(
    model: "CostModel | Path | str | None", device: DeviceProfile
) -> tuple[str | None, SourceModel | None]:
    """The model to tune with, and what tells it from others.

    Args:
        model: Model, folder, name or None, as `deploy_network` takes it.
        device: Profile of the device that is tuned for.

    Returns:
        A name of its contents and the model; twice None to tune without one.

    Raises:
        DataError: A folder that is no model.
    """
    if model == FROM_SCRATCH:
        return None, None
    if model is None:
        return packaged_source(device.family)
    if isinstance(model, str | Path):
        model = load_model(model)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        digest = hashlib.sha256((Path(folder) / "model" / HEAD).read_bytes()).hexdigest()
    return f"sha256:{digest}", SourceModel(model, "")


def packaged_source(family: str) -> tuple[str | None, SourceModel | None]:
    """The model that comes with the package for a family of devices.

    Returns:
        A name of its contents and the model; twice None where there is none of the family.
    """
    found = packaged_model(family)
    if found is None:
        log.info("no packaged cost model of %s: tuning without one", family)
        return None, None
    return found.name, SourceModel(load_model(found.folder), found.dataset_digest)
