"""Quantised ONNX networks, as quantisers write them: a node at a time, with scales that fit."""

import subprocess
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Qdq:
    """A graph that quantises and dequantises around each operator.

    Args:
        shape: Shape of the input.
        seed: Seed of weights, scales and zero points.
        opset: Version of the operator set.
    """

    def __init__(self, shape, seed=0, opset=17):
        self.rng = np.random.default_rng(seed)
        self.opset = opset
        self.nodes, self.weights = [], []
        self.input = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)

    def constant(self, value):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def halves(self, value, axis=1):
        """Both halves of a value along an axis."""
        names = [f"v{len(self.nodes)}_{half}" for half in (0, 1)]
        sizes = {"num_outputs": 2} if self.opset >= 18 else {}
        self.nodes.append(helper.make_node("Split", [value], names, axis=axis, **sizes))
        return names

    def padded(self, value, pads, number=None):
        """With zeros around it, or another number; pads as ONNX has them."""
        numbers = [] if number is None else [self.constant(np.float32(number))]
        return self.node("Pad", value, self.constant(np.asarray(pads, np.int64)), *numbers)

    def sliced(self, value, starts, ends, steps):
        """From some places of the last axes to others."""
        axes = range(-len(starts), 0)
        limits = (starts, ends, axes, steps)
        return self.node("Slice", value, *(self.constant(np.array(of, np.int64)) for of in limits))

    def scale(self, size=None):
        return np.asarray(self.rng.uniform(0.004, 0.04, size), np.float32)

    def zero(self, dtype, size=None):
        limits = np.iinfo(dtype)
        return np.asarray(self.rng.integers(limits.min, limits.max + 1, size), dtype)

    def qdq(self, value, dtype="uint8", scale=None, zero=None):
        """Quantised and dequantised, with numbers drawn where none are given."""
        numbers = (
            self.constant(self.scale() if scale is None else np.float32(scale)),
            self.constant(self.zero(dtype) if zero is None else np.asarray(zero, dtype)),
        )
        quantised = self.node("QuantizeLinear", value, *numbers)
        return self.node("DequantizeLinear", quantised, *numbers)

    def filters(self, shape, axis=0, dtype="int8", per_channel=True, zero=False):
        """Dequantised constants of 8 bits."""
        size = shape[axis] if per_channel else None
        scale = self.scale(size)
        zeros = self.zero(dtype, size) if zero else np.zeros(size or (), dtype)
        limits = np.iinfo(dtype)
        values = self.rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
        return self.fixed(values, scale, zeros, axis), scale

    def fixed(self, values, scale, zeros, axis):
        names = map(self.constant, (values, scale, zeros))
        return self.node("DequantizeLinear", *names, axis=axis)

    def bias(self, channels, scale, floating=False):
        if floating:
            return self.constant(self.rng.normal(size=channels).astype(np.float32))
        steps = self.rng.integers(-5000, 5000, channels).astype(np.int32)
        scale = np.broadcast_to(scale, channels).astype(np.float32)
        return self.fixed(steps, scale, np.zeros(channels, np.int32), 0)

    def model(self, *outputs):
        made = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "quantised", [self.input], made, self.weights)
        opset = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        version = 10 if self.opset > 20 else 8
        model = helper.make_model(graph, opset_imports=opset, ir_version=version)
        return onnx.shape_inference.infer_shapes(model)


def small_network(seed=0, opset=17, side=8):
    """A convolution, one of each channel, a residual sum, a pooling and a product."""
    net = Qdq((1, 4, side, side), seed, opset)
    x = net.qdq("x", scale=0.03, zero=128)
    weights, scale = net.filters((8, 4, 3, 3))
    bias = net.bias(8, scale * np.float32(0.03))
    first = net.qdq(net.node("Conv", x, weights, bias, pads=[1, 1, 1, 1]), scale=0.3, zero=3)
    weights, scale = net.filters((8, 1, 3, 3))
    deep = net.node("Conv", first, weights, group=8, pads=[1, 1, 1, 1])
    deep = net.qdq(net.node("Relu", deep), scale=0.2, zero=0)
    summed = net.qdq(net.node("Add", first, deep), scale=0.35, zero=40)
    pooled = net.qdq(net.node("GlobalAveragePool", summed), scale=0.2, zero=10)
    flat = net.node("Flatten", pooled)
    weights, scale = net.filters((8, 5), axis=1)
    return net.model(net.node("MatMul", flat, weights))


def assembly(executable):
    """What the kernels of a compiled network are in an assembler's words."""
    modules, found = [executable.mod], []
    for module in modules:
        modules.extend(module.imports)
        if module.kind == "llvm":
            found.append(module.inspect_source("asm"))
        if module.kind == "static_library":
            with tempfile.NamedTemporaryFile(suffix=".o") as file:
                module.write_to_file(file.name)
                line = ["objdump", "--disassemble", "--no-show-raw-insn", file.name]
                found.append(
                    subprocess.run(line, capture_output=True, text=True, check=True).stdout
                )
    return "\n".join(found)
