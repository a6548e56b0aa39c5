"""Networks in TFLite's files, run by LiteRT where their right answer is wanted."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hetfeat.errors import DataError, RequestError
from hetfeat.parsing import printable
from hetfeat.workloads.network import Array, Network
from hetfeat.workloads.tflite_rewrites import MAGIC, floats_around, with_outputs

MAGIC_AT = slice(4, 8)
EXTRA = "pip install 'hetfeat[tflite]'"
AGAIN = "convert it anew"
USUAL_LAYOUTS = {
    "relax.nn.conv2d": ["NCHW", "OIHW"],
    "relax.nn.avg_pool2d": ["NCHW"],
    "relax.nn.max_pool2d": ["NCHW"],
}
"""Layouts of ONNX and torch, of which integers are made."""


class TfliteModel:
    """A TFLite model that runs in LiteRT when it is called.

    Attributes:
        content: Bytes of the file.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content

    @functools.cached_property
    def interpreter(self) -> Any:
        """LiteRT's, made when it is first asked for anything.

        Raises:
            RequestError: LiteRT is not installed, or does not take the model.
        """
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError as error:
            raise RequestError("a TFLite network", "LiteRT installed", EXTRA) from error
        try:
            interpreter = Interpreter(model_content=self.content)
            interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise DataError(
                f"a TFLite model that LiteRT refuses ({_first_line(error)})",
                "a model of TFLite's own operators with fixed shapes",
                AGAIN,
            ) from error
        return interpreter

    def __call__(self, *inputs: Array) -> list[Array]:
        """The outputs, in the model's order."""
        interpreter = self.interpreter
        for place, value in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(place["index"], value)
        interpreter.invoke()
        places = interpreter.get_output_details()
        return [interpreter.get_tensor(place["index"]) for place in places]


def tflite_network(path: Path, content: bytes, name: str, batch: int, seed: int) -> Network:
    """The network of a `.tflite` file, whose batch size is the file's own.

    Raises:
        RequestError: LiteRT is not installed, or the file has another batch size.
        DataError: The file is no TFLite model, or is quantised in a way that is not computed.
    """
    if content[MAGIC_AT] != MAGIC:
        raise DataError(f"network '{path}'", "a TFLite model", AGAIN)
    module = TfliteModel(content)
    _check_quantised(path, module.interpreter.get_tensor_details())
    inputs, rng = [], np.random.default_rng(seed)
    for place in module.interpreter.get_input_details():
        shape, dtype = tuple(int(n) for n in place["shape"]), np.dtype(place["dtype"])
        if batch > 1 and shape[:1] != (batch,):
            rows = shape[0] if shape else "no"
            raise RequestError(
                f"--batch {batch} for '{path}', whose inputs have {rows} rows",
                "the batch size in the file",
                "convert the network with that batch size",
            )
        if dtype == np.float32:
            inputs.append(rng.standard_normal(shape, np.float32))
        elif dtype in (np.int8, np.uint8, np.int32, np.int64):
            inputs.append(np.ones(shape, dtype))  # until they are drawn
        else:
            raise DataError(
                f"network '{path}' with an input of {dtype}",
                "float32, int8 or uint8, or indices",
                AGAIN,
            )
    return Network(name, module, tuple(inputs), kind="TFLite")


def _check_quantised(path: Path, tensors: Sequence[Mapping[str, Any]]) -> None:
    """Refuses tensors that are quantised to other types than 8 bits, or with scales of no size.

    Args:
        path: Path of the file.
        tensors: What LiteRT says of each tensor.

    Raises:
        DataError: There is one.
    """
    for tensor in tensors:
        scales, dtype = tensor["quantization_parameters"]["scales"], np.dtype(tensor["dtype"])
        if not scales.size or np.issubdtype(dtype, np.floating):
            continue
        name = f"network '{path}' with '{printable(tensor['name'])}' quantised"
        if dtype not in (np.int8, np.uint8, np.int32):
            raise DataError(f"{name} to {dtype}", "int8 or uint8, and biases of int32", AGAIN)
        wrong = scales[~((scales > 0) & np.isfinite(scales))]
        if wrong.size:
            raise DataError(f"{name} with a scale of {wrong[0]:g}", "finite scales above 0", AGAIN)


def import_tflite(network: Network) -> Any:
    """A network of `tflite_network` as a Relax module, by TVM's importer.

    Raises:
        RequestError: What the importer needs is not installed.
    """
    try:
        import tflite
    except ImportError as error:
        raise RequestError("a TFLite network", "the package tflite installed", EXTRA) from error
    from tvm.relax.frontend.tflite import from_tflite
    from tvm.relax.transform import ConvertLayout

    from hetfeat.workloads.passes.integers import is_quantised

    assert isinstance(network.module, TfliteModel)
    content = floats_around(network.module.content)
    module = from_tflite(tflite.Model.GetRootAsModel(content, 0))
    return ConvertLayout(USUAL_LAYOUTS)(module) if is_quantised(module) else module


def of_outputs(module: Any, places: Sequence[int]) -> TfliteModel:
    """A module of `tflite_network` that returns some of its outputs."""
    assert isinstance(module, TfliteModel)
    return TfliteModel(with_outputs(module.content, places))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
