"""Quantised networks: the same integers from numpy and from TVM, whatever the instruction set."""

import re

import numpy as np
import pytest
import quantised
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from integer_networks import (
    AVX2,
    AVX512,
    VNNI,
    assert_same_bits,
    compiled,
    imported,
    inputs_of,
)

pytestmark = [pytest.mark.tvm]


def others(*values):
    """Of one kind with those that `make test` runs, and left to `make test-rest`."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


class Drawn:
    """A network of a few operators, drawn."""

    def __init__(self, data):
        self.draw = data.draw
        self.net = quantised.Qdq(
            (self.draw(st.integers(1, 2)), *(self.draw(st.sampled_from([3, 4, 8, 9])),) * 3),
            self.draw(st.integers(0, 2**16)),
            self.draw(st.integers(13, 21)),
        )

    def dtype(self):
        return self.draw(st.sampled_from(["uint8", "int8"]))

    def made(self):
        shape = [d.dim_value for d in self.net.input.type.tensor_type.shape.dim]
        value = self.net.qdq("x", self.dtype())
        for _ in range(self.draw(st.integers(1, 3))):
            kinds = [self.convolved, self.pooled, self.summed]
            moves = [
                self.padded,
                self.sliced,
                self.resized,
                *([self.halved] if shape[1] % 2 == 0 else []),
            ]
            kind = self.draw(st.sampled_from([*kinds, *moves]))
            value, shape = kind(value, shape)
        value, shape = self.draw(st.sampled_from([self.averaged, self.multiplied]))(value, shape)
        return self.net.model(value)

    def convolved(self, value, shape):
        kernel, channels = self.draw(st.sampled_from([1, 3])), shape[1]
        out = self.draw(st.sampled_from([channels, 2 * channels, 16]))
        groups = channels if out % channels == 0 and self.draw(st.booleans()) else 1
        stride = self.draw(st.sampled_from([1, 2]))
        pads = [self.draw(st.integers(kernel // 2, kernel - 1)) for _ in range(4)]
        weights, scale = self.weights((out, channels // groups, kernel, kernel), 0)
        biases = {"none": [], "int32": [False], "float32": [True]}
        of = biases[self.draw(st.sampled_from(list(biases)))]
        bias = [self.net.bias(out, scale * np.float32(0.03), floating) for floating in of]
        made = self.net.node(
            "Conv", value, weights, *bias, group=groups, strides=[stride, stride], pads=pads
        )
        made = self.cut(made)
        sides = [
            (side + pads[at] + pads[at + 2] - kernel) // stride + 1
            for at, side in enumerate(shape[2:])
        ]
        scale = self.draw(st.sampled_from([0.05, 0.3, 1.7]))
        return self.net.qdq(made, self.dtype(), scale=scale), [shape[0], out, *sides]

    def weights(self, shape, axis):
        dtype = self.dtype()
        zero = dtype == "uint8" or self.draw(st.booleans())
        return self.net.filters(shape, axis, dtype, self.draw(st.booleans()), zero)

    def cut(self, value):
        match self.draw(st.sampled_from(["not", "relu", "leaky", "clip"])):
            case "relu":
                return self.net.node("Relu", value)
            case "leaky":
                return self.net.node("LeakyRelu", value, alpha=0.1)
            case "clip":
                limits = [self.net.constant(np.float32(limit)) for limit in (0.1, 6)]
                return self.net.node("Clip", value, *limits)
        return value

    def pooled(self, value, shape):
        sides = [(side + 1) // 2 for side in shape[2:]]
        pads = [0, 0, *(2 * after - before for after, before in zip(sides, shape[2:], strict=True))]
        made = self.net.node("MaxPool", value, kernel_shape=[2, 2], strides=[2, 2], pads=pads)
        return self.net.qdq(made, self.dtype(), scale=0.3), [*shape[:2], *sides]

    def summed(self, value, shape):
        other = self.net.qdq(self.cut(value), self.dtype(), scale=0.11)
        return self.net.qdq(self.cut(self.net.node("Add", value, other)), self.dtype()), shape

    def padded(self, value, shape):
        sides = [self.draw(st.integers(0, 2)) for _ in range(4)]
        number = self.draw(st.sampled_from([None, 0, 1.5]))
        made = self.net.padded(self.cut(value), [0, 0, *sides[:2], 0, 0, *sides[2:]], number)
        wider = [side + sides[at] + sides[at + 2] for at, side in enumerate(shape[2:])]
        return self.requantised(made), [*shape[:2], *wider]

    def sliced(self, value, shape):
        first, step = self.draw(st.integers(0, 1)), self.draw(st.sampled_from([1, 2]))
        made = self.net.sliced(self.cut(value), [first, 0], [99, 99], [step, 1])
        rows = len(range(first, shape[2], step))
        return (self.requantised(made), [*shape[:2], rows, shape[3]]) if rows else (value, shape)

    def resized(self, value, shape):
        how = self.draw(st.sampled_from(["half_pixel round_prefer_floor", "asymmetric floor"]))
        places, nearest = how.split()
        modes = {"coordinate_transformation_mode": places, "nearest_mode": nearest}
        scales = self.net.constant(np.array([1, 1, 2, 2], np.float32))
        made = self.net.node("Resize", self.cut(value), "", scales, mode="nearest", **modes)
        return self.requantised(made), [*shape[:2], 2 * shape[2], 2 * shape[3]]

    def halved(self, value, shape):
        first, second = self.net.halves(value)
        made = self.net.node("Add", self.net.qdq(first, self.dtype()), self.cut(second))
        return self.requantised(made), [shape[0], shape[1] // 2, *shape[2:]]

    def requantised(self, value):
        return self.net.qdq(value, self.dtype(), scale=self.draw(st.sampled_from([0.05, 0.3])))

    def averaged(self, value, shape):
        pooled = self.net.qdq(self.net.node("GlobalAveragePool", value), self.dtype())
        weights, _ = self.weights((7, shape[1]), 0)
        bias = self.net.constant(self.net.rng.normal(size=7).astype(np.float32))
        flat = self.net.node("Flatten", pooled)
        return self.net.node("Gemm", flat, weights, bias, transB=1), [shape[0], 7]

    def multiplied(self, value, shape):
        turned = self.net.node("Transpose", value, perm=[0, 1, 3, 2])
        made = self.net.node("MatMul", value, self.net.qdq(turned, self.dtype()))
        return self.net.qdq(self.cut(made), self.dtype(), scale=0.4), [*shape[:3], shape[2]]


@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_what_is_written_computes_the_same_bits(data):
    """Both in numpy, which is quick."""
    from hetfeat.workloads.integer_reference import run_integers
    from hetfeat.workloads.passes.integers import make_integers

    model = Drawn(data).made()
    module, inputs = imported(model), inputs_of(model)
    found, expected = (run_integers(of, inputs) for of in (make_integers(module), module))
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(value, wanted)


@pytest.mark.slow
@settings(max_examples=3, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.data())
def test_what_is_compiled_computes_the_same_bits(data):
    assert_same_bits(Drawn(data).made())


def test_what_only_moves_elements_moves_8_bits():
    """A pad, a slice and halves, at the scale of what goes into them."""
    from hetfeat.workloads.passes.integers import bindings, make_integers
    from hetfeat.workloads.passes.simplify import operator_of

    net = quantised.Qdq((1, 4, 8, 8))
    numbers = {"scale": 0.03, "zero": 128}
    value = net.qdq(net.padded(net.qdq("x", **numbers), [0, 0, 0, 1, 0, 0, 1, 0]), **numbers)
    value = net.qdq(net.sliced(value, [1, 0], [9, 9], [2, 1]), **numbers)
    first, second = (net.qdq(half, **numbers) for half in net.halves(value))
    (weights, _), (others_, _) = net.filters((8, 2, 3, 3)), net.filters((8, 2, 1, 1))
    made = [net.node("Conv", first, weights, pads=[1] * 4), net.node("Conv", second, others_)]
    model = net.model(*(net.qdq(one) for one in made))
    kinds = {
        operator_of(binding.value): str(binding.var.ty.dtype)
        for binding in bindings(make_integers(imported(model)))
        if operator_of(binding.value) in ("relax.nn.pad", "relax.strided_slice", "relax.nn.conv2d")
    }
    assert kinds == {
        "relax.nn.pad": "uint8",
        "relax.strided_slice": "uint8",
        "relax.nn.conv2d": "int32",
    }
    assert_same_bits(model, cpus=(AVX2,))


@pytest.mark.parametrize("opset", [13, 21, *others(17, 19)])
def test_each_opset(opset):
    (output,) = assert_same_bits(quantised.small_network(opset=opset), cpus=(AVX2,))
    assert np.ptp(output) > 0


def test_every_product_is_one_of_integers_and_few_layouts_change():
    from hetfeat.workloads.passes.integers import bindings
    from hetfeat.workloads.passes.simplify import operator_of
    from hetfeat.workloads.relax import as_target, in_layout

    module = imported(quantised.small_network())
    made = in_layout(module, as_target({"kind": "llvm", "mcpu": AVX2}))
    calls = [one.value for one in bindings(made)]
    names = [operator_of(call).removeprefix("relax.") for call in calls]
    types = {
        str(call.ty.dtype)
        for call, name in zip(calls, names, strict=True)
        if name in ("nn.conv2d", "matmul")
    }
    assert types == {"int32"}
    assert names.count("permute_dims") <= 2
    assert not {"quantize", "dequantize"} & set(names)


@pytest.mark.parametrize("flat", [False, True])
def test_a_maximum_of_sums_is_taken_of_8_bits(flat):
    """Where they are quantised next; a row of sums of one scale is pooled as it is."""
    from hetfeat.workloads.passes.integers import bindings, make_integers
    from hetfeat.workloads.passes.simplify import operator_of

    net = quantised.Qdq((1, 4, 8, 8), seed=3)
    x = net.qdq("x", scale=0.03, zero=128)
    weights, scale = net.filters((1 if flat else 8, 4, 3, 3))
    bias = net.bias(1 if flat else 8, scale * np.float32(0.03))
    made = net.node("Relu", net.node("Conv", x, weights, bias, pads=[1, 1, 1, 1]))
    made = net.node("MaxPool", made, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    made = net.node("Flatten", made) if flat else made
    model = net.model(net.qdq(made, scale=0.05, zero=10))
    (output,) = assert_same_bits(model)
    assert np.ptp(output) > 0
    calls = [one.value for one in bindings(make_integers(imported(model)))]
    pooled = [str(call.ty.dtype) for call in calls if operator_of(call) == "relax.nn.max_pool2d"]
    assert pooled == ["int32" if flat else "uint8"]


def test_numpy_agrees_with_the_operators_of_onnx():
    """In each of which float32 is rounded: a step of the last scale apart, at most."""
    from onnx.reference import ReferenceEvaluator

    from hetfeat.workloads.integer_reference import run_integers

    model = quantised.small_network(side=6, opset=19)
    inputs = inputs_of(model)
    (found,) = run_integers(imported(model), inputs)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": inputs[0]})
    assert np.abs(found - expected).max() < 0.01 * np.abs(expected).max()


@pytest.mark.parametrize("cpu", [AVX2, *others(VNNI, AVX512)])
def test_no_sum_saturates_and_no_product_is_contracted(cpu):
    """`vpmaddubsw` saturates in 16 bits, on unsigned inputs of full range."""
    assembly = quantised.assembly(compiled(imported(quantised.small_network()), cpu))
    assert "vmulps" in assembly
    assert not re.findall(r"vpmaddubsw|vpdpbusds", assembly)
    _, *kernels = re.split(r"\.type\s+(?=\S+,@function)", assembly)
    contracted = [one for one in kernels if re.search(r"vfn?m(?:add|sub)\d+[ps]s", one)]
    assert len(kernels) > len(contracted)
    assert all("divided" in one.partition(",")[0] for one in contracted)


def test_a_float_network_is_left_as_it_is():
    from tvm_ffi import structural_equal

    from hetfeat.workloads.passes.integers import make_integers

    net = quantised.Qdq((1, 4))
    weights = net.constant(net.rng.normal(size=(4, 4)).astype(np.float32))
    module = imported(net.model(net.node("MatMul", "x", weights)))
    assert structural_equal(make_integers(module), module)


def test_sums_that_32_bits_do_not_hold_stay_float():
    from hetfeat.workloads.integer_reference import run_integers
    from hetfeat.workloads.integer_tensors import InexactError

    net = quantised.Qdq((1, 70000))
    weights = net.fixed(np.full((70000, 1), 127, np.int8), np.float32(0.01), np.int8(0), axis=1)
    model = net.model(net.node("MatMul", net.qdq("x"), weights))
    with pytest.raises(InexactError, match="matmul"):
        run_integers(imported(model), inputs_of(model))
