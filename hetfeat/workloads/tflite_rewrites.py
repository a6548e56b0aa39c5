"""TFLite models rewritten, from bytes to bytes, by the classes of TFLite's own schema."""

from collections.abc import Sequence
from typing import Any

MAGIC = b"TFL3"
IN_FLOAT = frozenset(
    (
        *("BATCH_MATMUL", "DEPTH_TO_SPACE", "ELU", "GATHER", "GELU", "MIRROR_PAD", "PACK", "PAD"),
        *("RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2", "SLICE", "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V"),
        *("SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK"),
    )
)
"""Operators that TVM's importer takes in float32 and refuses in 8 bits."""


def with_outputs(content: bytes, places: Sequence[int]) -> bytes:
    """A model that returns some of its outputs.

    Args:
        content: Bytes of a model.
        places: Places of the outputs among its own, in the order wanted.
    """
    model = _unpacked(content)
    graph = model.subgraphs[0]
    graph.outputs = [graph.outputs[place] for place in places]
    model.signatureDefs = None  # they name outputs, too
    return _packed(model)


def floats_around(content: bytes) -> bytes:
    """A model that computes `IN_FLOAT` in float32, between conversions from and to 8 bits.

    Of what only moves elements `passes.integers` makes integers again.

    Args:
        content: Bytes of a model; one without such operators on 8 bits is returned as it is.
    """
    model = _unpacked(content)
    count = sum(len(graph.operators) for graph in model.subgraphs)
    for graph in model.subgraphs:
        graph.operators = [
            made for step in graph.operators for made in _between_conversions(model, graph, step)
        ]
    same = count == sum(len(graph.operators) for graph in model.subgraphs)
    return content if same else _packed(model)


def _between_conversions(model: Any, graph: Any, step: Any) -> list[Any]:
    from ai_edge_litert.schema_py_generated import BuiltinOperator

    code = model.operatorCodes[step.opcodeIndex]
    number = max(code.builtinCode, code.deprecatedBuiltinCode)
    if number not in {getattr(BuiltinOperator, name) for name in IN_FLOAT}:
        return [step]
    before, inputs = [], list(step.inputs)
    for place, tensor in enumerate(inputs):
        if tensor >= 0 and _is_quantised(graph.tensors[tensor]):
            inputs[place] = _in_float(graph, tensor)
            before.append(_conversion(model, "DEQUANTIZE", tensor, inputs[place]))
    after, outputs = [], list(step.outputs)
    for place, tensor in enumerate(outputs):
        if _is_quantised(graph.tensors[tensor]):
            outputs[place] = _in_float(graph, tensor)
            after.append(_conversion(model, "QUANTIZE", outputs[place], tensor))
    step.inputs, step.outputs = inputs, outputs
    return [*before, step, *after]


def _is_quantised(tensor: Any) -> bool:
    from ai_edge_litert.schema_py_generated import TensorType

    numbers = tensor.quantization
    scaled = numbers is not None and numbers.scale is not None and len(numbers.scale) > 0
    return scaled and tensor.type in (TensorType.INT8, TensorType.UINT8)


def _in_float(graph: Any, place: int) -> int:
    """The place of a new tensor, which is another's in float32."""
    from ai_edge_litert.schema_py_generated import TensorT, TensorType

    of, made = graph.tensors[place], TensorT()
    made.name, made.type, made.buffer = f"float {len(graph.tensors)}", TensorType.FLOAT32, 0
    made.shape, made.shapeSignature, made.hasRank = of.shape, of.shapeSignature, of.hasRank
    graph.tensors.append(made)
    return len(graph.tensors) - 1


def _conversion(model: Any, kind: str, of: int, to: int) -> Any:
    from ai_edge_litert.schema_py_generated import BuiltinOperator, OperatorCodeT, OperatorT

    code = OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = getattr(BuiltinOperator, kind)
    code.version = 2
    step = OperatorT()
    step.opcodeIndex, step.inputs, step.outputs = len(model.operatorCodes), [of], [to]
    model.operatorCodes.append(code)
    return step


def _unpacked(content: bytes) -> Any:
    from ai_edge_litert.schema_py_generated import ModelT

    return ModelT.InitFromPackedBuf(content)


def _packed(model: Any) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), MAGIC)
    return bytes(builder.Output())
