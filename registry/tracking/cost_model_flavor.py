"""A trained cost model as an MLflow model and as a version in the registry."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetfeat.dataset.store import RecordStore
from hetfeat.errors import RequestError
from hetfeat.features.assemble import SCHEDULED, WITH_STORES
from hetfeat.features.batch import Examples, have_stores
from hetfeat.models.base import CostModel
from registry.files.manifest import write_manifest
from registry.tracking.environment_tags import pinned

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.models.model import ModelInfo
    from mlflow.models.signature import ModelSignature

ARTIFACT = "model"
"""Name of the model's folder among the artifacts of the logged model."""

REQUIREMENTS = ("cloudpickle", "mlflow", "numpy", "pandas", "pyarrow", "PyYAML")
"""Packages that loading needs beside hetfeat itself, which is installed from its own wheel, and
beside those the model names."""

_MODEL_FILE = Path(__file__).with_name("pyfunc_model.py")


def log_cost_model(
    model: CostModel, example: "pd.DataFrame", step: int, tags: Mapping[str, str]
) -> tuple["ModelInfo", str]:
    """Logs a model into the active run.

    Args:
        model: Trained model.
        example: Example input from `input_example`.
        step: Step of the run's final metrics, which MLflow links to the model by it.
        tags: Tags of the logged model.

    Returns:
        MLflow's description of the model, and the digest of its folder's manifest.
    """
    import mlflow.pyfunc

    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / ARTIFACT
        model.save(folder)
        manifest_sha256 = write_manifest(folder)
        info = mlflow.pyfunc.log_model(
            name=ARTIFACT,
            python_model=str(_MODEL_FILE),
            artifacts={ARTIFACT: str(folder)},
            signature=signature(),
            input_example=example,
            pip_requirements=pinned(*REQUIREMENTS, *model.packages),
            tags=dict(tags),
            model_type="cost model",
            step=step,
        )
    return info, manifest_sha256


def refuse_without_stores(model: CostModel, records: Examples, name: str) -> None:
    """Refuses records that have no per-store features for a model that rests on them.

    Raises:
        RequestError: They are not of a kind.
    """
    if model.with_stores and not have_stores(records.batch):
        raise RequestError(
            f"model '{name}', which learnt from per-store features, for records without any",
            "records that TVM's MetaSchedule could lower, or a model of records like these",
            "train one on such records",
        )


def signature() -> "ModelSignature":
    """Columns of the input and output, as `pyfunc_model` documents them."""
    from mlflow.models.signature import ModelSignature
    from mlflow.types.schema import Array, ColSpec, DataType, Schema

    texts = [ColSpec("string", name) for name in ("operator", "shapes", "dtype")]
    return ModelSignature(
        Schema(
            [
                *texts,
                ColSpec("double", "flops"),
                ColSpec(Array(DataType.double), "stores"),
                ColSpec("string", "trace"),
                ColSpec("string", "profile"),
            ]
        ),
        Schema([ColSpec("double", "score"), ColSpec("double", "y")]),
    )


def input_example(store: RecordStore) -> "pd.DataFrame":
    """The first programs of a store, if possible with features, as input of the logged model."""
    columns = ["operator", "shapes", "dtype", "flops", "stores", "trace"]
    wanted = [*columns, "device"]
    tables = (
        table for where in (WITH_STORES, SCHEDULED) for table in store.scan(wanted, where=where)
    )
    frame = next(table for table in tables if len(table)).slice(0, 2).to_pandas()
    frame["stores"] = [[] if stores is None else stores for stores in frame["stores"]]
    profiles: dict[str, Any] = {
        name: json.dumps(profile.to_dict()) for name, profile in store.devices().items()
    }
    frame["profile"] = frame["device"].map(profiles)
    example: pd.DataFrame = frame[[*columns, "profile"]]
    return example
