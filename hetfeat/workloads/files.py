"""Networks in files: ONNX, exported programs of torch (`.pt2`) and TFLite."""

import hashlib
from pathlib import Path

from hetfeat.workloads.network import Network
from hetfeat.workloads.onnx_files import data_files, onnx_network, parsed
from hetfeat.workloads.reading import content_of
from hetfeat.workloads.tflite import tflite_network


def load_file(path: Path, name: str, batch: int, seed: int = 0) -> Network:
    """The network in a file.

    Args:
        path: Path that ends in `.onnx`, `.pt2` or `.tflite`.
        name: Name of the network.
        batch: Batch size; must be the file's own unless that is left open there.
        seed: Seed of the example inputs of ONNX and TFLite, default 0.

    Raises:
        RequestError: No such file, one of another batch size, or a package for it is missing.
        DataError: The file is not what its name says, or wants data from outside its folder.
    """
    if path.suffix.lower() == ".onnx":
        return onnx_network(path, name, batch, seed)
    if path.suffix.lower() == ".tflite":
        return tflite_network(path, content_of(path), name, batch, seed)
    from hetfeat.workloads.program_files import program_network

    return program_network(path, name, batch)


def digest(path: Path, part_bytes: int = 1 << 24) -> str:
    """SHA-256 over a network's file and the data that belongs to it.

    Args:
        path: Path of the file.
        part_bytes: Bytes that are read at once of the data, of any size; 16 MB by default.

    Raises:
        RequestError: No such file.
        DataError: As `load_file`.
    """
    total = hashlib.sha256(content_of(path))
    if path.suffix.lower() == ".onnx":
        for data in data_files(path, parsed(path)).values():
            with data.open("rb") as file:
                while part := file.read(part_bytes):
                    total.update(part)
    return total.hexdigest()
