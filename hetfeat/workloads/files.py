"""Networks in files: ONNX, exported programs of torch (`.pt2`) and TFLite."""

import functools
import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hetfeat.errors import DataError, RequestError
from hetfeat.workloads.network import Network
from hetfeat.workloads.qoperators import as_qdq
from hetfeat.workloads.quantised_onnx import check_quantised, is_quantised
from hetfeat.workloads.quantised_torch import know_operators
from hetfeat.workloads.tflite import tflite_network

if TYPE_CHECKING:
    import onnx

HUB_FOLDERS = ("blobs", "snapshots")
"""Folders of a model in a cache of Hugging Face: files by their digests, and links to them by
name."""


def load_file(path: Path, name: str, batch: int) -> Network:
    """The network in a file.

    Args:
        path: Path that ends in `.onnx`, `.pt2` or `.tflite`.
        name: Name of the network.
        batch: Batch size; must be the file's own unless that is left open there.

    Raises:
        RequestError: No such file, one of another batch size, or a package for it is missing.
        DataError: The file is not what its name says, or wants data from outside its folder.
    """
    if path.suffix.lower() == ".onnx":
        return _onnx_network(path, name, batch)
    if path.suffix.lower() == ".pt2":
        return _exported_program(path, name, batch)
    return tflite_network(path, _bytes(path), name, batch)


def digest(path: Path, part_bytes: int = 1 << 24) -> str:
    """SHA-256 over a network's file and the data that belongs to it.

    Args:
        path: Path of the file.
        part_bytes: Bytes that are read at once of the data, of any size; 16 MB by default.

    Raises:
        RequestError: No such file.
        DataError: As `load_file`.
    """
    total = hashlib.sha256(_bytes(path))
    if path.suffix.lower() == ".onnx":
        for location in sorted(_external(path, _parsed(path))):
            with _inside(path, location).open("rb") as file:
                while part := file.read(part_bytes):
                    total.update(part)
    return total.hexdigest()


class OnnxModule(torch.nn.Module):
    """An ONNX model that runs in ONNX Runtime, called like a torch module."""

    def __init__(self, model: "onnx.ModelProto", path: Path | None = None) -> None:
        """Args: the model, and its file if data lies beside it, of which protobuf takes 2 GB."""
        super().__init__()
        self.model, self.path = model, path

    @functools.cached_property
    def session(self) -> Any:
        """Made when it first runs: TVM names all operators that are amiss, this the first."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what it refuses is raised; it need not print that, too
        if is_quantised(self.model):  # in float32: its own integers saturate on some CPUs
            level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.graph_optimization_level = level
        source = str(self.path) if self.path else self.model.SerializeToString()
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """The outputs, in the model's order."""
        names = [value.name for value in self.session.get_inputs()]
        feed = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
        outputs = [value.name for value in self.model.graph.output]  # of the file's, perhaps some
        return [torch.from_numpy(value) for value in self.session.run(outputs, feed)]


def _onnx_network(path: Path, name: str, batch: int) -> Network:
    import onnx

    model = _parsed(path)
    folder = path.parent.resolve()
    data_files = {location: _inside(path, location) for location in _external(path, model)}
    # What is reached by a link, libraries refuse: they get the model with its data in it.
    linked = any(file != folder / location for location, file in data_files.items())
    beside = path if data_files and not linked else None
    try:
        _take_data_in(path, model)
        onnx.checker.check_model(str(beside) if beside else model)
        model = as_qdq(model)
        check_quantised(model, str(path))
        weights = {value.name for value in model.graph.initializer}
        inputs = [v for v in model.graph.input if v.name not in weights]
        examples = tuple(_example(path, value, batch) for value in inputs)
        return Network(name, OnnxModule(model, beside), examples, model, "ONNX")
    except (onnx.checker.ValidationError, OSError, ValueError, RuntimeError) as error:
        raise _unreadable(path, error) from error


def _example(path: Path, value: Any, batch: int) -> torch.Tensor:
    """Random numbers, or ones for integers until they are drawn; fixes an open batch size."""
    import onnx

    _check_numbers(path, value)
    tensor = value.type.tensor_type
    sizes = tensor.shape.dim
    if sizes and sizes[0].dim_value <= 0:  # as exporters write an open one
        sizes[0].dim_value = batch
    open_sizes = [i for i, size in enumerate(sizes) if not size.HasField("dim_value")]
    if open_sizes:
        raise RequestError(
            f"input '{value.name}' of '{path}', whose size {open_sizes[0]} is left open",
            "fixed sizes but for the batch",
            "fix it, with onnxruntime.tools.make_dynamic_shape_fixed for example",
        )
    shape = [int(size.dim_value) for size in sizes]
    _check_batch(path, shape, batch)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if np.issubdtype(dtype, np.floating):
        return torch.randn(shape).to(torch.from_numpy(np.zeros(0, dtype)).dtype)
    return torch.from_numpy(np.ones(shape, dtype))


def _check_numbers(path: Path, value: Any) -> None:
    import onnx

    kind = value.type.WhichOneof("value")
    if kind == "tensor_type":
        kind = f"tensor({onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()})"
    if not kind or kind.endswith("_type") or kind == "tensor(string)":
        raise RequestError(
            f"input '{value.name}' of '{path}', a {(kind or 'value').removesuffix('_type')}",
            "inputs that are tensors of numbers",
            "leave what makes numbers of it out of the network",
        )


def _exported_program(path: Path, name: str, batch: int) -> Network:
    _bytes(path)
    before = os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"  # torch.export.load would unpickle
    log = logging.getLogger("torch.export")
    log.disabled = True  # it logs a traceback before it raises
    know_operators()
    try:
        program = torch.export.load(path)
        module = program.module()
    except Exception as error:  # whatever torch raises for what is no such file
        raise _unreadable(path, error) from error
    finally:
        log.disabled = False
        if before is None:
            del os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"]
        else:
            os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = before
    leaves, spec = torch.utils._pytree.tree_flatten(program.example_inputs or ())
    inputs = [value for value in leaves if isinstance(value, torch.Tensor)]
    if not inputs:
        raise RequestError(f"network '{path}'", "example inputs that are tensors", "export it anew")
    signature = program.graph_signature.user_inputs
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    traced = [values.get(name) for name, leaf in zip(signature, leaves, strict=True)]
    examples = tuple(
        _of_batch(path, leaf, value, batch)
        for leaf, value in zip(leaves, traced, strict=True)
        if isinstance(leaf, torch.Tensor)
    )
    return Network(name, _CalledByTensors(module, leaves, spec), examples)


class _CalledByTensors(torch.nn.Module):
    """A program whose inputs are nested or have names, called by its tensors in their order."""

    def __init__(self, module: torch.nn.Module, leaves: list[Any], spec: Any) -> None:
        super().__init__()
        self.module, self.spec = module, spec
        self.others = [None if isinstance(v, torch.Tensor) else v for v in leaves]
        self.tensors = [isinstance(v, torch.Tensor) for v in leaves]

    def forward(self, *inputs: torch.Tensor) -> Any:
        tensors = iter(inputs)
        pairs = zip(self.tensors, self.others, strict=True)
        leaves = [next(tensors) if is_tensor else other for is_tensor, other in pairs]
        arguments, named = torch.utils._pytree.tree_unflatten(leaves, self.spec)
        return self.module(*arguments, **named)


def _of_batch(path: Path, value: torch.Tensor, traced: Any, batch: int) -> torch.Tensor:
    """An example input with as many rows as asked for, if the program leaves them open."""
    if traced is None or not traced.ndim or isinstance(traced.shape[0], int):
        _check_batch(path, list(value.shape), batch)
        return value
    return value[torch.arange(batch) % len(value)]


def _check_batch(path: Path, shape: list[int], batch: int) -> None:
    if batch > 1 and (not shape or shape[0] != batch):
        raise RequestError(
            f"--batch {batch} for '{path}', whose inputs have {shape[0] if shape else 'no'} rows",
            "the batch size in the file",
            "export the network with that batch size",
        )


def _parsed(path: Path) -> "onnx.ModelProto":
    """An ONNX model, external data left outside."""
    import onnx

    try:
        return onnx.load_model_from_string(_bytes(path))
    except Exception as error:  # protobuf's own, which has no public name that is typed
        raise _unreadable(path, error) from error


def _external(path: Path, model: "onnx.ModelProto") -> set[str]:
    """Where data of a model's tensors lies outside of it.

    Raises:
        DataError: A tensor's says so in no proper way.
    """
    from onnx.external_data_helper import ExternalDataInfo

    try:
        return {ExternalDataInfo(tensor).location for tensor in _outside(model)}
    except ValueError as error:
        raise _unreadable(path, error) from error


def _take_data_in(path: Path, model: "onnx.ModelProto") -> None:
    """Reads the external data of a model into it."""
    from onnx import TensorProto
    from onnx.external_data_helper import ExternalDataInfo

    for tensor in _outside(model):
        where = ExternalDataInfo(tensor)
        with _inside(path, where.location).open("rb") as file:
            file.seek(where.offset or 0)
            tensor.raw_data = file.read(where.length)
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]


def _outside(model: "onnx.ModelProto") -> list["onnx.TensorProto"]:
    """The tensors of a model whose data lies outside of it."""
    from onnx.external_data_helper import uses_external_data

    tensors = [*_tensors(model.graph)]
    for function in model.functions:
        tensors += _of_nodes(function.node)
    return [tensor for tensor in tensors if uses_external_data(tensor)]


def _tensors(graph: Any) -> Iterator["onnx.TensorProto"]:
    yield from graph.initializer
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Any) -> Iterator["onnx.TensorProto"]:
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for inner in (attribute.g, *attribute.graphs):
            yield from _tensors(inner)


def _inside(path: Path, location: str) -> Path:
    """A file of external data, resolved, which must lie in the model's folder.

    It is a plain file there, or, in a cache of Hugging Face, a link that stays in that cache.
    """
    relative = PurePosixPath(location)
    file, folder = (path.parent / relative).resolve(), path.parent.resolve()
    cache = _hub_cache(folder)
    stays = file == folder / relative or (cache is not None and file.is_relative_to(cache))
    if relative.is_absolute() or ".." in relative.parts or not stays or not file.is_file():
        raise DataError(
            f"'{path}' with data in '{location}'",
            "a plain file in the folder of the model, reached by no link that leaves its "
            "Hugging Face cache",
            "save the model with its data beside it",
        )
    return file


def _hub_cache(folder: Path) -> Path | None:
    """The folder `models--ORG--NAME` of a Hugging Face cache that a resolved folder lies in."""
    parents = (folder, *folder.parents)
    return next((p for p in parents if all((p / name).is_dir() for name in HUB_FOLDERS)), None)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RequestError(
            f"network '{path}' ({error.strerror})", "a file that exists", "correct --network"
        ) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    kind = (
        "an ONNX model" if path.suffix.lower() == ".onnx" else "an exported program without pickles"
    )
    return DataError(f"network '{path}', which cannot be read ({first})", kind, "export it anew")
