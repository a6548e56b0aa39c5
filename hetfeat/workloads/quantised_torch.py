"""Exported programs of torch that are quantised, as torch's `convert_pt2e` leaves them."""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hetfeat.errors import RequestError
from hetfeat.workloads import integer_rules as rules

if TYPE_CHECKING:
    import torch

NAMESPACE = "quantized_decomposed"
"""Namespace of torch's operators between float32 and integers."""


def know_operators() -> None:
    """Registers torch's operators of quantised programs, without which none is loaded."""
    importlib.import_module("torch.ao.quantization.fx._decomposed")


def is_quantised_program(module: "torch.nn.Module") -> bool:
    """Whether a module is a program, or holds one, that quantises or dequantises a tensor."""
    graphs = [graph for part in module.modules() if (graph := getattr(part, "graph", None))]
    nodes = [node for graph in graphs for node in getattr(graph, "nodes", ())]
    return any(getattr(node.target, "namespace", "") == NAMESPACE for node in nodes)


def converters() -> dict[str, Callable[[Any, Any], Any]]:
    """What makes Relax of these operators, by their names, for TVM's importer."""
    return {
        "quantize_per_tensor.default": _quantize,
        "quantize_per_channel.default": _refused,
        "dequantize_per_tensor.default": _dequantize,
        "dequantize_per_channel.default": _dequantize_channels,
    }


def _quantize(node: Any, importer: Any) -> Any:
    from tvm import relax

    value, scale, zero, low, high, dtype = importer.retrieve_args(node)
    name, emit = _stored_type(dtype), importer.block_builder.emit
    numbers = relax.const(np.float32(scale)), relax.const(np.asarray(zero, name))
    made = emit(relax.op.quantize(value, *numbers, axis=0, out_dtype=name))
    least, most = rules.RANGES[name]
    if low > least:
        made = emit(relax.op.maximum(made, relax.const(np.asarray(low, name))))
    if high < most:
        made = emit(relax.op.minimum(made, relax.const(np.asarray(high, name))))
    return made


def _dequantize(node: Any, importer: Any) -> Any:
    from tvm import relax

    value, scale, zero, _, _, dtype = importer.retrieve_args(node)
    numbers = relax.const(np.float32(scale)), relax.const(np.asarray(zero, _stored_type(dtype)))
    return importer.block_builder.emit(relax.op.dequantize(value, *numbers, axis=0))


def _dequantize_channels(node: Any, importer: Any) -> Any:
    from tvm import relax

    value, scales, zeros, axis, _, _, dtype = importer.retrieve_args(node)
    emit = importer.block_builder.emit
    if str(scales.ty.dtype) != "float32":
        scales = emit(relax.op.astype(scales, "float32"))
    zeros = emit(relax.op.astype(zeros, _stored_type(dtype)))
    return emit(relax.op.dequantize(value, scales, zeros, axis=axis))


def _refused(node: Any, importer: Any) -> Any:
    raise RequestError(
        f"a program that quantises each channel of '{node.args[0]}' as it runs",
        "one scale for each tensor that is computed",
        "quantise it in another way",
    )


def _stored_type(dtype: "torch.dtype") -> str:
    """The name of a type of 8 bits, or of a bias.

    Raises:
        RequestError: It is another one.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in rules.RANGES:
        raise RequestError(
            f"a program that is quantised to {name}", "int8 or uint8", "quantise it in another way"
        )
    return name
