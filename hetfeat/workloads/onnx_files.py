"""Networks in ONNX's files, run by ONNX Runtime where their right answer is wanted."""

import functools
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from hetfeat.errors import DataError, RequestError
from hetfeat.workloads.network import Array, Network
from hetfeat.workloads.qoperators import as_qdq
from hetfeat.workloads.quantised_onnx import check_quantised, is_quantised
from hetfeat.workloads.reading import check_batch, content_of, unreadable

if TYPE_CHECKING:
    import onnx

HUB_FOLDERS = ("blobs", "snapshots")
"""Folders of a model in a cache of Hugging Face: files by their digests, and links to them by
name."""


class OnnxModel:
    """An ONNX model that runs in ONNX Runtime when it is called."""

    def __init__(self, model: "onnx.ModelProto", files: "_Files | None" = None) -> None:
        """Args: the model, and its files if data lies beside it, of which protobuf takes 2 GB."""
        self.model, self.files = model, files

    @functools.cached_property
    def session(self) -> Any:
        """Made when it first runs: TVM names all operators that are amiss, this the first."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what it refuses is raised; it need not print that, too
        if is_quantised(self.model):  # in float32: its own integers saturate on some CPUs
            level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.graph_optimization_level = level
        source = str(self.files.path) if self.files else self.model.SerializeToString()
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    def __call__(self, *inputs: Array) -> list[Array]:
        """The outputs, in the model's order."""
        names = [value.name for value in self.session.get_inputs()]
        outputs = [value.name for value in self.model.graph.output]  # of the file's, perhaps some
        found: list[Array] = self.session.run(outputs, dict(zip(names, inputs, strict=True)))
        return found


class _Files:
    """A model's file with the data beside it, none of them a link: libraries refuse those.

    Attributes:
        path: Path of the model's file. Where there are links, it lies in a copy, which goes with
            this object.
    """

    def __init__(self, path: Path, data: Mapping[str, Path]) -> None:
        self.path = path
        if not _is_linked(path, data):
            return
        self._folder = tempfile.TemporaryDirectory(prefix="hetfeat-onnx-")
        self.path = Path(self._folder.name, path.name)
        for location, file in {path.name: path, **data}.items():
            name = Path(self._folder.name, location)
            name.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, name)  # a hard link is refused, too


def _is_linked(path: Path, data: Mapping[str, Path]) -> bool:
    folder = path.parent.resolve()
    return any(file != folder / location for location, file in data.items())


def onnx_network(
    path: Path, name: str, batch: int, seed: int, *, most_bytes: int = 2_000_000_000
) -> Network:
    """The network of an `.onnx` file, which may have data beside it.

    Args:
        path: Path of the file.
        name: Name of the network.
        batch: Batch size, where the file leaves it open.
        seed: Seed of the example inputs.
        most_bytes: Bytes of data behind links that are held in the model; 2 GB by default, the most
            that protobuf takes. More is copied to a folder without links.

    Raises:
        RequestError: No such file, one of another batch size or of open sizes, or one that is
            quantised in a way that is not built.
        DataError: The file is no ONNX model, or wants data from outside its folder.
    """
    import onnx

    model = parsed(path)
    data = data_files(path, model)
    size = sum(file.stat().st_size for file in data.values())
    # What is reached by a link gets its data into it where that is no more than protobuf takes.
    in_memory = not data or (_is_linked(path, data) and size < most_bytes)
    files = None if in_memory else _Files(path, data)
    try:
        _take_data_in(path, model)
        onnx.checker.check_model(str(files.path) if files else model)
        model = as_qdq(model)
        check_quantised(model, str(path))
        weights = {value.name for value in model.graph.initializer}
        inputs = [v for v in model.graph.input if v.name not in weights]
        rng = np.random.default_rng(seed)
        examples = tuple(_example(path, value, batch, rng) for value in inputs)
        return Network(name, OnnxModel(model, files), examples, model, "ONNX")
    except (onnx.checker.ValidationError, OSError, ValueError, RuntimeError) as error:
        raise unreadable(path, error) from error


def _example(path: Path, value: Any, batch: int, rng: np.random.Generator) -> Array:
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
    check_batch(path, shape, batch)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape, np.float32).astype(dtype)
    return np.ones(shape, dtype)


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


def parsed(path: Path) -> "onnx.ModelProto":
    """An ONNX model, external data left outside.

    Raises:
        RequestError: No such file.
        DataError: It is no ONNX model.
    """
    import onnx

    try:
        return onnx.load_model_from_string(content_of(path))
    except Exception as error:  # protobuf's own, which has no public name that is typed
        raise unreadable(path, error) from error


def data_files(path: Path, model: "onnx.ModelProto") -> dict[str, Path]:
    """The files with a model's external data, by where its tensors say that they lie.

    Raises:
        DataError: A tensor says so in no proper way, or they lie outside of the model's folder.
    """
    from onnx.external_data_helper import ExternalDataInfo

    try:
        locations = {ExternalDataInfo(tensor).location for tensor in _outside(model)}
    except ValueError as error:
        raise unreadable(path, error) from error
    return {location: _inside(path, location) for location in sorted(locations)}


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
