"""A network, and what it computes, as files that peers load, written once for all of them."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hetfeat.deploy.verify import Reference
    from hetfeat.workloads.network import Array, Network


def write_onnx(network: "Network", path: Path) -> None:
    """Writes a network of torch or ONNX as an ONNX file.

    Args:
        network: Network to write.
        path: Path of the file.

    Raises:
        Exception: Whatever torch or protobuf raise of a network that they cannot write.
    """
    if network.onnx is not None:
        path.write_bytes(network.onnx.SerializeToString())
        return
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The TorchScript exporter: the newer one needs a further package.
        torch.onnx.export(network.module, network.inputs, str(path), dynamo=False)


def write_for_peers(network: "Network", folder: Path) -> dict[str, Any] | None:
    """Settings by which engines load a network from files in `folder`, without torch.

    Args:
        network: Network to write.
        folder: Folder of the files.

    Returns:
        `onnx`, the path of the model, and `inputs`, those of its inputs; None for a network that
        is not written: one of TFLite, of over 2 GB, or that torch does not export.
    """
    if network.kind == "TFLite":
        return None
    model = folder / "network.onnx"
    try:
        write_onnx(network, model)
    except Exception:  # torch's and protobuf's own, of many types
        return None
    return {"onnx": str(model), "inputs": _write_arrays("input", network.arrays(), folder)}


def write_exact(reference: "Reference", folder: Path) -> dict[str, list[str]]:
    """Settings by which engines are held to outputs that are known to the bit.

    Args:
        reference: What a network computes.
        folder: Folder of the files.

    Returns:
        `inputs` and the `expected` outputs, paths of arrays; nothing where none are exact.
    """
    if not (reference.integers or {}).get("exact"):
        return {}
    sample = reference.samples[0]
    return {
        "inputs": _write_arrays("exact_input", sample.inputs, folder),
        "expected": _write_arrays("expected", [each.value for each in sample.outputs], folder),
    }


def _write_arrays(name: str, values: Iterable["Array"], folder: Path) -> list[str]:
    paths = []
    for place, value in enumerate(values):
        paths.append(str(folder / f"{name}_{place}.npy"))
        np.save(paths[-1], value, allow_pickle=False)
    return paths
