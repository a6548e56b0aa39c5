"""Operators that take integers with their scales, written as float32 ones between QDQ pairs.

ONNX has both ways to say the same. One is enough to be made integers of.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hetfeat.workloads.quantised_onnx import QDQ

if TYPE_CHECKING:
    import onnx

OPSET = 13
"""Least version of the operator set whose DequantizeLinear has an axis."""
MICROSOFT = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""
FLOAT32 = {
    "QLinearAdd": ("Add", 2),
    "QLinearAveragePool": ("AveragePool", 1),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", 1),
    "QLinearLeakyRelu": ("LeakyRelu", 1),
    "QLinearMatMul": ("MatMul", 2),
    "QLinearMul": ("Mul", 2),
    "QLinearSigmoid": ("Sigmoid", 1),
    "QLinearSoftmax": ("Softmax", 1),
}
"""The operator that each is one of integers of, and how many tensors it takes."""
OF_INTEGERS = ("channels_last", "opset")
"""Attributes that the operators of float32 do not have."""


def has_qoperators(model: "onnx.ModelProto") -> bool:
    """Whether a model has operators of integers with scales."""
    return any(
        node.op_type in _WRITERS and (node.op_type not in QDQ or node.domain == MICROSOFT)
        for node in model.graph.node
    )


def as_qdq(model: "onnx.ModelProto") -> "onnx.ModelProto":
    """The model with QuantizeLinear and DequantizeLinear around operators of float32.

    Operators whose scales are no constants stay as they are, and all do in older opsets.
    """
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    if not has_qoperators(model) or opset < OPSET:
        return model
    import onnx

    written = onnx.ModelProto()
    written.CopyFrom(model)
    del written.graph.node[:]
    writer = _Writer(written)
    for node in model.graph.node:
        write = _WRITERS.get(node.op_type)
        if write is None or not write(writer, node):
            written.graph.node.append(node)
    return written


def as_imported(model: "onnx.ModelProto") -> "onnx.ModelProto":
    """The model with Conv of int32 instead of ConvInteger, as TVM imports it and ONNX has it not.

    One whose weights are no constants stays as it is.
    """
    import onnx
    from onnx import numpy_helper

    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    kinds = {node.op_type for node in model.graph.node}
    if "ConvInteger" not in kinds:
        return model
    written = onnx.ModelProto()
    written.CopyFrom(model)
    del written.graph.node[:]
    writer = _Writer(written)
    for node in model.graph.node:
        names = [name for name in node.input[1::2] if name]
        if node.op_type != "ConvInteger" or not constants.keys() >= set(names):
            written.graph.node.append(node)
            continue
        filters, *of_filters = (
            numpy_helper.to_array(constants[name]).astype(np.int32) for name in names
        )
        for zero in of_filters:  # one, or one for each channel
            filters = filters - zero.reshape(-1, *[1] * (filters.ndim - 1))
        whole, *of_data = (
            writer.node("Cast", [name], to=onnx.TensorProto.INT32)
            for name in node.input[0::2]
            if name
        )
        if of_data:
            whole = writer.node("Sub", [whole, *of_data])
        inputs = [whole, writer.constant(np.ascontiguousarray(filters))]
        writer.node("Conv", inputs, node.output[0], **_attributes(node))
    _drop_unread(written)
    return written


def _drop_unread(model: "onnx.ModelProto") -> None:
    """Removes constants that nothing reads any more."""
    read = {name for node in model.graph.node for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


class _Writer:
    """Adds nodes and constants to a model."""

    def __init__(self, model: "onnx.ModelProto") -> None:
        from onnx import numpy_helper

        self.graph = model.graph
        self._values = {
            tensor.name: numpy_helper.to_array(tensor)
            for tensor in model.graph.initializer
            if np.prod(tensor.dims) <= 1 << 16
        }
        self._ranks = {tensor.name: len(tensor.dims) for tensor in model.graph.initializer}
        self._count = 0

    def scale(self, name: str) -> Any:
        """The scales of a name, None where they are no constant."""
        return self._values.get(name)

    def node(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Adds a node and names its output."""
        from onnx import helper

        self._count += 1
        output = output or f"qdq_{self._count}_{kind}"
        self.graph.node.append(
            helper.make_node(kind, list(inputs), [output], name=f"{output}_made", **attributes)
        )
        return output

    def constant(self, value: np.ndarray[Any, Any]) -> str:
        """Adds a constant and names it."""
        from onnx import numpy_helper

        self._count += 1
        name = f"qdq_{self._count}_constant"
        self.graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def dequantized(self, inputs: Sequence[str], axis: int | None = None) -> str:
        """A tensor, its scale and zero point as float32; by default of its last axis."""
        if axis is None:
            axis = max(self._ranks.get(inputs[0], 0) - 1, 0)
        if np.size(self._values.get(inputs[1], 0)) == 1:
            return self.node("DequantizeLinear", inputs)
        return self.node("DequantizeLinear", inputs, axis=axis)

    def bias(self, name: str, scales: Sequence[Any]) -> str:
        """An int32 bias as float32, whose scale is the product of two others."""
        first, second = (np.asarray(factor, np.float64) for factor in scales)
        scale = (first * second).astype(np.float32)
        if scale.size == 1:
            return self.node("DequantizeLinear", [name, self.constant(scale.reshape(()))])
        return self.node("DequantizeLinear", [name, self.constant(scale.reshape(-1))], axis=0)


def _attributes(node: Any) -> dict[str, Any]:
    from onnx import helper

    return {
        attribute.name: helper.get_attribute_value(attribute)
        for attribute in node.attribute
        if attribute.name not in OF_INTEGERS
    }


def _convolution(writer: _Writer, node: Any) -> bool:
    names = list(node.input)
    scales = writer.scale(names[1]), writer.scale(names[4])
    if any(scale is None for scale in scales):
        return False
    inputs = [writer.dequantized(names[:3], 1), writer.dequantized(names[3:6], 0)]
    if len(names) > 8:
        inputs.append(writer.bias(names[8], scales))
    made = writer.node("Conv", inputs, **_attributes(node))
    writer.node("QuantizeLinear", [made, *names[6:8]], node.output[0])
    return True


def _gemm(writer: _Writer, node: Any) -> bool:
    names, attributes = list(node.input), _attributes(node)
    scales = writer.scale(names[1]), writer.scale(names[4])
    if any(scale is None for scale in scales) or attributes.get("alpha", 1.0) != 1.0:
        return False
    axis = 0 if attributes.get("transB") else 1
    inputs = [writer.dequantized(names[:3], 0), writer.dequantized(names[3:6], axis)]
    if len(names) > 6 and names[6]:
        inputs.append(writer.bias(names[6], scales))
    is_float = len(names) < 8
    made = writer.node("Gemm", inputs, node.output[0] if is_float else "", **attributes)
    if not is_float:
        writer.node("QuantizeLinear", [made, *names[7:9]], node.output[0])
    return True


def _of_tensors(writer: _Writer, node: Any) -> bool:
    names = list(node.input)
    kind, count = FLOAT32[node.op_type]
    triples = [names[at : at + 3] for at in range(0, 3 * count, 3)]
    if any(attribute.name == "channels_last" and attribute.i for attribute in node.attribute):
        return False
    made = writer.node(kind, [writer.dequantized(of) for of in triples], **_attributes(node))
    writer.node("QuantizeLinear", [made, *names[3 * count :]], node.output[0])
    return True


def _concatenation(writer: _Writer, node: Any) -> bool:
    names = list(node.input)
    parts = [writer.dequantized(names[at : at + 3]) for at in range(2, len(names), 3)]
    made = writer.node("Concat", parts, **_attributes(node))
    writer.node("QuantizeLinear", [made, *names[:2]], node.output[0])
    return True


def _same(writer: _Writer, node: Any) -> bool:
    """ONNX Runtime's own quantising, which is ONNX's."""
    if node.domain != MICROSOFT:
        return False
    writer.node(node.op_type, list(node.input), node.output[0], **_attributes(node))
    return True


_WRITERS: dict[str, Callable[[_Writer, Any], bool]] = {
    "DequantizeLinear": _same,
    "QGemm": _gemm,
    "QLinearConcat": _concatenation,
    "QLinearConv": _convolution,
    "QuantizeLinear": _same,
    **dict.fromkeys(FLOAT32, _of_tensors),
}
