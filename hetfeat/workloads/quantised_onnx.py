"""Quantised ONNX models: what of them is taken, and what is refused by name."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from hetfeat.errors import DataError, RequestError

if TYPE_CHECKING:
    import onnx

QDQ = ("QuantizeLinear", "DequantizeLinear")
"""Operators of ONNX between float32 and integers."""
TAKE_INTEGERS = (*QDQ, "ConvInteger", "DynamicQuantizeLinear", "MatMulInteger")
"""Operators of which constants of 8 bits are part."""
STORED = ("INT8", "UINT8")
"""Types that a quantised tensor may have; an INT32 may be dequantised, too: a bias."""


def is_quantised(model: "onnx.ModelProto") -> bool:
    """Whether a model quantises or dequantises a tensor."""
    return any(node.op_type in TAKE_INTEGERS for node in model.graph.node)


def stored_types(model: "onnx.ModelProto") -> set[str]:
    """The types of a model's constants that no quantised operator takes, in small letters."""
    from onnx import TensorProto

    nodes = [node for node in model.graph.node if node.op_type in TAKE_INTEGERS]
    quantised = {name for node in nodes for name in node.input}
    return {
        TensorProto.DataType.Name(value.data_type).lower()
        for value in model.graph.initializer
        if value.name not in quantised
    }


def check_quantised(model: "onnx.ModelProto", where: str) -> None:
    """Refuses a quantised model whose numbers are wrong, or that is quantised in another way.

    Args:
        model: Model that ONNX's own checker has taken.
        where: Name of the model's file.

    Raises:
        DataError: A scale, a zero point or an axis is none.
        RequestError: It is quantised to other types than 8 bits, or in blocks.
    """
    if not is_quantised(model):
        return
    tensors = {tensor.name: tensor for tensor in _constants(model)}
    shapes = _shapes(model)
    for node in model.graph.node:
        if node.op_type in QDQ:
            _refuse_other_kinds(node, tensors, where)
            wrong = next(_wrong(node, tensors, shapes), None)
            if wrong:
                raise DataError(
                    f"'{where}', whose {_named(node)} has {wrong[0]}", wrong[1], "quantise it anew"
                )


def _named(node: Any) -> str:
    return f"{node.op_type} '{node.name or node.output[0]}'"


def _constants(model: "onnx.ModelProto") -> Iterator[Any]:
    yield from model.graph.initializer
    for node in model.graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value":
                yield _renamed(attribute.t, node.output[0])


def _renamed(tensor: Any, name: str) -> Any:
    copy = type(tensor)()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy


def _shapes(model: "onnx.ModelProto") -> dict[str, list[int]]:
    """The shapes of a model's values, where every size is known."""
    import onnx

    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # of more than 2 GB: protobuf's own, which has no name that is typed
        inferred = model.graph
    shapes = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    for value in (*inferred.input, *inferred.value_info):
        tensor = value.type.tensor_type
        if tensor.HasField("shape"):
            sizes = [d.dim_value for d in tensor.shape.dim]
            if all(sizes):
                shapes[value.name] = sizes
    return shapes


def _refuse_other_kinds(node: Any, tensors: dict[str, Any], where: str) -> None:
    """Raises RequestError for other types than 8 bits, or blocks."""
    from onnx import TensorProto

    attributes = {attribute.name: attribute for attribute in node.attribute}
    kinds = []
    if "block_size" in attributes and attributes["block_size"].i:
        kinds.append("blocks of a tensor")
    if "output_dtype" in attributes and attributes["output_dtype"].i:
        kinds.append(TensorProto.DataType.Name(attributes["output_dtype"].i))
    given = [node.input[2]] if len(node.input) > 2 else []
    if node.op_type == "DequantizeLinear":
        given.append(node.input[0])
    kinds += [TensorProto.DataType.Name(tensors[n].data_type) for n in given if n in tensors]
    taken = (*STORED, "INT32") if node.op_type == "DequantizeLinear" else STORED
    scale = tensors.get(node.input[1])
    if scale is not None and scale.data_type != TensorProto.FLOAT:
        kinds.append(f"a scale of {TensorProto.DataType.Name(scale.data_type)}")
    other = next((kind for kind in kinds if kind not in taken), None)
    if other:
        raise RequestError(
            f"'{where}', whose {_named(node)} is of {other.lower()}",
            "tensors quantised to int8 or uint8, with one scale of float32 for each or for each "
            "channel",
            "quantise it in another way",
        )


def _wrong(
    node: Any, tensors: dict[str, Any], shapes: dict[str, list[int]]
) -> Iterator[tuple[str, str]]:
    """What is wrong with a node's numbers, and what would be right."""
    from onnx import TensorProto, numpy_helper

    scale = tensors.get(node.input[1])
    if scale is None:
        return  # computed when the network runs
    values = numpy_helper.to_array(scale)
    for value in values.ravel():
        if not (math.isfinite(value) and value > 0):
            yield f"a scale of {value}", "scales that are finite and above 0"
    zero = tensors.get(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if zero is not None:
        dtype = onnx_dtype(zero.data_type)
        limits = np.iinfo(dtype)
        outside = [v for v in zero.int32_data if not limits.min <= v <= limits.max]
        if outside:
            yield f"a zero point of {outside[0]}", f"one that {dtype} holds"
        data = tensors.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if data is not None and data.data_type != zero.data_type:
            kind = TensorProto.DataType.Name(data.data_type).lower()
            yield f"a zero point of {dtype} for a tensor of {kind}", "one type for both"
        if list(zero.dims) != list(scale.dims) and np.prod(zero.dims) != np.prod(scale.dims):
            yield f"{int(np.prod(zero.dims))} zero points", f"{values.size}, as of scales"
    yield from _wrong_axis(node, values, shapes.get(node.input[0]))


def _wrong_axis(
    node: Any, scale: np.ndarray[Any, Any], shape: list[int] | None
) -> Iterator[tuple[str, str]]:
    if scale.size == 1 or shape is None:
        return
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
    if scale.ndim > 1:
        yield f"scales of shape {list(scale.shape)}", "one for each index of an axis"
    elif not -len(shape) <= axis < len(shape):
        yield f"the axis {axis} for shape {shape}", "one of its axes"
    elif scale.size != shape[axis]:
        yield f"{scale.size} scales for axis {axis} of {shape}", f"{shape[axis]}, or one"


def onnx_dtype(data_type: int) -> np.dtype[Any]:
    """The type of numpy for a type of ONNX."""
    import onnx

    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(data_type))
