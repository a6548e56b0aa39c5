"""TFLite files of a few operators, written by the schema's own classes."""

from pathlib import Path

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

SHAPE, CHANNELS = (1, 8, 8, 4), 6


def _tensor(name: str, shape: tuple[int, ...], buffer: int, kind: int):
    made = schema.TensorT()
    made.name, made.shape, made.buffer, made.type = name, list(shape), buffer, kind
    return made


def _buffer(values: np.ndarray | None = None):
    made = schema.BufferT()
    made.data = None if values is None else np.frombuffer(values.tobytes(), np.uint8)
    return made


def save_convolution(
    path: Path, kind: int = schema.TensorType.FLOAT32, pooled: bool = False
) -> Path:
    """A 3x3 convolution with bias and ReLU, of an input of some type, and a pooling after it."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((CHANNELS, 3, 3, SHAPE[-1])).astype(np.float32)
    bias = rng.standard_normal(CHANNELS).astype(np.float32)
    float32 = schema.TensorType.FLOAT32
    graph = schema.SubGraphT()
    graph.tensors = [
        _tensor("x", SHAPE, 0, kind),
        _tensor("weights", weights.shape, 1, float32),
        _tensor("bias", bias.shape, 2, float32),
        _tensor("y", (*SHAPE[:-1], CHANNELS), 0, float32),
    ]
    graph.inputs, graph.outputs = [0], [3]
    options = schema.Conv2DOptionsT()
    options.padding = schema.Padding.SAME
    options.strideW = options.strideH = 1
    options.dilationWFactor = options.dilationHFactor = 1
    options.fusedActivationFunction = schema.ActivationFunctionType.RELU
    step = schema.OperatorT()
    step.opcodeIndex, step.inputs, step.outputs = 0, [0, 1, 2], [3]
    step.builtinOptionsType = schema.BuiltinOptions.Conv2DOptions
    step.builtinOptions = options
    graph.operators = [step]
    buffers = [None, weights, bias]
    if not pooled:
        return _saved(path, graph, ["CONV_2D"], buffers)
    half = (SHAPE[0], SHAPE[1] // 2, SHAPE[2] // 2, CHANNELS)
    graph.tensors.append(_tensor("pooled", half, 0, float32))
    graph.outputs = [4, 3]
    pool = schema.OperatorT()
    pool.opcodeIndex, pool.inputs, pool.outputs = 1, [3], [4]
    pool.builtinOptionsType = schema.BuiltinOptions.Pool2DOptions
    pool.builtinOptions = schema.Pool2DOptionsT()
    pool.builtinOptions.padding = schema.Padding.VALID
    pool.builtinOptions.strideW = pool.builtinOptions.strideH = 2
    pool.builtinOptions.filterWidth = pool.builtinOptions.filterHeight = 2
    graph.operators.append(pool)
    return _saved(path, graph, ["CONV_2D", "MAX_POOL_2D"], buffers)


def save_two_outputs(path: Path) -> Path:
    """The convolution pooled, then the convolution itself."""
    return save_convolution(path, pooled=True)


def save_unknown(path: Path) -> Path:
    """Two operators that LiteRT knows and TVM does not: DYNAMIC_UPDATE_SLICE, then RNN."""
    float32, units, width = schema.TensorType.FLOAT32, 3, 4
    buffers = [
        None,
        np.ones((1, 2), np.float32),
        np.array([0, 1], np.int32),
        np.ones((units, width), np.float32),
        np.ones((units, units), np.float32),
        np.zeros(units, np.float32),
    ]
    graph = schema.SubGraphT()
    graph.tensors = [
        _tensor("x", (1, width), 0, float32),
        _tensor("update", (1, 2), 1, float32),
        _tensor("start", (2,), 2, schema.TensorType.INT32),
        _tensor("updated", (1, width), 0, float32),
        _tensor("weights", (units, width), 3, float32),
        _tensor("recurrent", (units, units), 4, float32),
        _tensor("bias", (units,), 5, float32),
        _tensor("state", (1, units), 0, float32),
        _tensor("y", (1, units), 0, float32),
    ]
    graph.tensors[7].isVariable = True
    graph.inputs, graph.outputs = [0], [8]
    update, recur = schema.OperatorT(), schema.OperatorT()
    update.opcodeIndex, update.inputs, update.outputs = 0, [0, 1, 2], [3]
    recur.opcodeIndex, recur.inputs, recur.outputs = 1, [3, 4, 5, 6, 7], [8]
    recur.builtinOptionsType = schema.BuiltinOptions.RNNOptions
    recur.builtinOptions = schema.RNNOptionsT()
    graph.operators = [update, recur]
    return _saved(path, graph, ["DYNAMIC_UPDATE_SLICE", "RNN"], buffers)


def _saved(path: Path, graph, operators: list[str], buffers: list) -> Path:
    model = schema.ModelT()
    model.version, model.subgraphs = 3, [graph]
    model.operatorCodes = [_code(operator) for operator in operators]
    model.buffers = [_buffer(values) for values in buffers]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path


def _code(operator: str):
    code = schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, operator)
    code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
    return code
