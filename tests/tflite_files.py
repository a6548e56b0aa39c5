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


def _quantised(tensor, scales, zero_point: int = 0, axis: int = 0):
    """The same tensor, its integers with one scale or one for each index of an axis."""
    tensor.quantization = schema.QuantizationParametersT()
    tensor.quantization.scale = np.atleast_1d(np.asarray(scales, np.float32))
    zero_points = np.full(tensor.quantization.scale.size, zero_point, np.int64)
    tensor.quantization.zeroPoint = zero_points
    tensor.quantization.quantizedDimension = axis
    return tensor


def save_quantised(path: Path, scale: float = 0.05) -> Path:
    """A classifier in int8: convolution, depthwise convolution, mean and fully connected layer.

    Args:
        path: Path of the file.
        scale: Scale of the input, 0.05 by default.
    """
    rng = np.random.default_rng(0)
    classes, deep = 5, SHAPE[-1]
    half = (SHAPE[0], SHAPE[1] // 2, SHAPE[2] // 2, CHANNELS)
    first, each, last = rng.uniform(0.005, 0.02, (3, CHANNELS)).astype(np.float32)
    last = last[:classes]
    wide, of_mean, kind, int32 = 0.04, 0.02, schema.TensorType.INT8, schema.TensorType.INT32

    def weights(*shape: int):
        return rng.integers(-127, 128, shape, np.int8)

    def bias(count: int):
        return rng.integers(-500, 500, count, np.int32)

    buffers = [
        None,
        *(weights(CHANNELS, 3, 3, deep), bias(CHANNELS)),
        *(weights(1, 3, 3, CHANNELS), bias(CHANNELS)),
        np.array([1, 2], np.int32),
        *(weights(classes, CHANNELS), bias(classes)),
    ]
    graph = schema.SubGraphT()
    graph.tensors = [
        _quantised(_tensor("x", SHAPE, 0, kind), scale, 3),
        _quantised(_tensor("weights", buffers[1].shape, 1, kind), first),
        _quantised(_tensor("bias", (CHANNELS,), 2, int32), scale * first),
        _quantised(_tensor("y", (*SHAPE[:-1], CHANNELS), 0, kind), wide, -20),
        _quantised(_tensor("each", buffers[3].shape, 3, kind), each, axis=3),
        _quantised(_tensor("bias of each", (CHANNELS,), 4, int32), wide * each),
        _quantised(_tensor("z", half, 0, kind), wide, 5),
        _tensor("axes", (2,), 5, int32),
        _quantised(_tensor("mean", (1, CHANNELS), 0, kind), of_mean, -4),
        _quantised(_tensor("last", buffers[6].shape, 6, kind), last),
        _quantised(_tensor("bias of last", (classes,), 7, int32), of_mean * last),
        _quantised(_tensor("classes", (1, classes), 0, kind), 0.03, 7),
    ]
    graph.inputs, graph.outputs = [0], [11]
    convolution = schema.Conv2DOptionsT()
    convolution.fusedActivationFunction = schema.ActivationFunctionType.RELU6
    depthwise = schema.DepthwiseConv2DOptionsT()
    depthwise.depthMultiplier = 1
    for options, stride in ((convolution, 1), (depthwise, 2)):
        options.padding = schema.Padding.SAME
        options.strideW = options.strideH = stride
        options.dilationWFactor = options.dilationHFactor = 1
    mean, connected = schema.ReducerOptionsT(), schema.FullyConnectedOptionsT()
    steps = [
        ("CONV_2D", [0, 1, 2], 3, "Conv2DOptions", convolution),
        ("DEPTHWISE_CONV_2D", [3, 4, 5], 6, "DepthwiseConv2DOptions", depthwise),
        ("MEAN", [6, 7], 8, "ReducerOptions", mean),
        ("FULLY_CONNECTED", [8, 9, 10], 11, "FullyConnectedOptions", connected),
    ]
    return _of_steps(path, graph, steps, buffers)


def save_moves(path: Path) -> Path:
    """Operators in int8 that TVM takes in float32 only, around a convolution: pad, halves, pack."""
    rng = np.random.default_rng(0)
    deep, kind, int32 = SHAPE[-1], schema.TensorType.INT8, schema.TensorType.INT32
    padded, half = (1, 9, 9, deep), (1, 9, 9, deep // 2)
    out = (1, 4, 4, CHANNELS)
    buffers = [
        None,
        np.array([[0, 0], [0, 1], [0, 1], [0, 0]], np.int32),
        np.array(3, np.int32),
        rng.integers(-127, 128, (CHANNELS, 3, 3, deep // 2), np.int8),
        rng.integers(-500, 500, CHANNELS, np.int32),
    ]
    graph, scale, wide = schema.SubGraphT(), 0.05, 0.04
    of_filters = rng.uniform(0.005, 0.02, CHANNELS).astype(np.float32)
    graph.tensors = [
        _quantised(_tensor("x", SHAPE, 0, kind), scale, 3),
        _tensor("sides", (4, 2), 1, int32),
        _quantised(_tensor("padded", padded, 0, kind), scale, 3),
        _tensor("axis", (), 2, int32),
        _quantised(_tensor("first", half, 0, kind), scale, 3),
        _quantised(_tensor("second", half, 0, kind), scale, 3),
        _quantised(_tensor("weights", buffers[3].shape, 3, kind), of_filters),
        _quantised(_tensor("bias", (CHANNELS,), 4, int32), scale * of_filters),
        _quantised(_tensor("y", out, 0, kind), wide, -20),
        _quantised(_tensor("z", out, 0, kind), wide, -20),
        _quantised(_tensor("both", (2, *out), 0, kind), wide, -20),
    ]
    graph.inputs, graph.outputs = [0], [10]
    convolution = schema.Conv2DOptionsT()
    convolution.padding = schema.Padding.VALID
    convolution.strideW = convolution.strideH = 2
    convolution.dilationWFactor = convolution.dilationHFactor = 1
    halves, pack = schema.SplitOptionsT(), schema.PackOptionsT()
    halves.numSplits, pack.valuesCount = 2, 2
    steps = [
        ("PAD", [0, 1], 2, "PadOptions", schema.PadOptionsT()),
        ("SPLIT", [3, 2], (4, 5), "SplitOptions", halves),
        ("CONV_2D", [4, 6, 7], 8, "Conv2DOptions", convolution),
        ("CONV_2D", [5, 6, 7], 9, "Conv2DOptions", convolution),
        ("PACK", [8, 9], 10, "PackOptions", pack),
    ]
    return _of_steps(path, graph, steps, buffers)


def save_operator(path: Path, name: str, options, shape, others: list, out: tuple) -> Path:
    """One operator on a tensor of int8, and on constants; a product is one with itself.

    Args:
        path: Path of the file.
        name: Name of the operator.
        options: Its options, an object of the schema, or None.
        shape: Shape of the tensor.
        others: Arrays of int32 that follow it.
        out: Shape of each output, number of outputs.
    """
    kind, int32, (made, count) = schema.TensorType.INT8, schema.TensorType.INT32, out
    graph = schema.SubGraphT()
    graph.tensors = [_quantised(_tensor("x", shape, 0, kind), 0.05, 3)]
    for place, values in enumerate(others, 1):
        graph.tensors.append(_tensor(f"c{place}", values.shape, place, int32))
    first = len(graph.tensors)
    for place in range(count):
        graph.tensors.append(_quantised(_tensor(f"y{place}", made, 0, kind), 0.05, 3))
    graph.inputs, graph.outputs = [0], list(range(first, first + count))
    kind_of = "NONE" if options is None else type(options).__name__.removesuffix("T")
    inputs = [0, 0] if name == "BATCH_MATMUL" else list(range(first))
    step = (name, inputs, graph.outputs, kind_of, options)
    return _of_steps(path, graph, [step], [None, *others])


def _of_steps(path: Path, graph, steps: list, buffers: list) -> Path:
    """Saves a graph of operators, each with its inputs, outputs and options."""
    graph.operators = []
    for place, (_, inputs, outputs, name, options) in enumerate(steps):
        step = schema.OperatorT()
        step.opcodeIndex, step.inputs, step.outputs = place, inputs, list(np.atleast_1d(outputs))
        step.builtinOptionsType = getattr(schema.BuiltinOptions, name)
        step.builtinOptions = options
        graph.operators.append(step)
    return _saved(path, graph, [name for name, *_ in steps], buffers)


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
