"""TFLite files of one convolution, written by the schema's own classes."""

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
    path: Path, operator: str = "CONV_2D", kind: int = schema.TensorType.FLOAT32
) -> Path:
    """A 3x3 convolution with bias and ReLU, or something else that calls itself `operator`."""
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
    code = schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, operator)
    code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
    model = schema.ModelT()
    model.version, model.subgraphs, model.operatorCodes = 3, [graph], [code]
    model.buffers = [_buffer(), _buffer(weights), _buffer(bias)]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path
