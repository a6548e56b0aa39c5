"""A bundle as an MLflow model, which `mlflow models serve` can serve."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from registry.files.manifest import write_manifest
from registry.tracking.environment_tags import pinned

if TYPE_CHECKING:
    from mlflow.models.model import ModelInfo
    from mlflow.models.signature import ModelSignature

ARTIFACT = "bundle"
"""Name of the bundle among the artifacts of the logged model."""

REQUIREMENTS = ("apache-tvm", "apache-tvm-ffi", "mlflow", "numpy", "pandas", "pillow")

_MODEL_FILE = Path(__file__).with_name("pyfunc_bundle.py")


def log_bundle(
    folder: Path, manifest: Mapping[str, Any], tags: Mapping[str, str]
) -> tuple["ModelInfo", str]:
    """Logs a bundle into the active run.

    Args:
        folder: Folder of the bundle.
        manifest: Manifest of the bundle itself.
        tags: Tags of the logged model.

    Returns:
        MLflow's description of the model, and the digest of the manifest that the registry adds.
    """
    import mlflow.pyfunc

    manifest_sha256 = write_manifest(folder)
    with warnings.catch_warnings(record=True):  # MLflow's advice passes any filter
        info = mlflow.pyfunc.log_model(
            name=ARTIFACT,
            python_model=str(_MODEL_FILE),
            artifacts={ARTIFACT: str(folder)},
            signature=signature(manifest),
            pip_requirements=pinned(*REQUIREMENTS),
            metadata={"inputs": manifest["inputs"]},
            tags=dict(tags),
            model_type="bundle",
        )
    return info, manifest_sha256


def signature(manifest: Mapping[str, Any]) -> "ModelSignature":
    """Inputs and outputs of a bundle, any number of rows.

    An input is declared as objects: MLflow would refuse base64 for a tensor of numbers before the
    model sees it. The shapes are in the model's metadata, and checked when it runs.
    """
    import numpy as np
    from mlflow.models.signature import ModelSignature
    from mlflow.types.schema import ColSpec, Schema, TensorSpec

    inputs: list[ColSpec | TensorSpec] = [
        TensorSpec(np.dtype("O"), (-1,), f"input_{i}") for i in range(len(manifest["inputs"]))
    ]
    outputs = manifest.get("outputs") or [manifest["output"]]
    names = [output["name"] for output in outputs] if len(outputs) > 1 else [None]
    rows: list[ColSpec | TensorSpec] = [
        TensorSpec(np.dtype(output["dtype"]), (-1, *output["shape"][1:]), name)
        for output, name in zip(outputs, names, strict=True)
    ]
    return ModelSignature(Schema(inputs), Schema(rows))
