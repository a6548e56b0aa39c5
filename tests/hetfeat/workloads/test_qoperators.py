"""Other ways to write a quantised network: the same integers."""

import numpy as np
import onnx
import pytest
import quantised
from integer_networks import assert_same_bits
from onnx import helper, numpy_helper

from hetfeat.workloads.qoperators import as_imported, as_qdq, has_qoperators

pytestmark = [pytest.mark.tvm]


def run(model, x):
    from tvm.relax.frontend.onnx import from_onnx

    from hetfeat.workloads.integer_reference import run_integers

    return run_integers(from_onnx(model), [x])


class Drawn:
    """A network as QDQ, and the same with operators of integers."""

    def __init__(self, per_channel):
        self.net = quantised.Qdq((1, 4, 6, 6), seed=3)
        self.per_channel = per_channel

    def numbers(self, scale, zero, dtype=np.uint8):
        values = np.asarray(scale, np.float32), np.asarray(zero, dtype)
        return [self.net.constant(value) for value in values]

    def weights(self, shape, axis):
        size = (shape[axis],) if self.per_channel else ()
        values = self.net.rng.integers(-128, 128, shape).astype(np.int8)
        scale = self.net.rng.uniform(0.01, 0.02, size)
        names = [self.net.constant(values), *self.numbers(scale, np.zeros(size), np.int8)]
        return names, np.asarray(scale, np.float32)

    def models(self):
        net = self.net
        x, y, z, s, p = (
            self.numbers(*of) for of in ((0.03, 120), (0.4, 3), (0.5, 9), (0.9, 1), (0.2, 7))
        )
        first, scale = self.weights((8, 4, 3, 3), 0)
        last, last_scale = self.weights((5, 8), 0)
        bias = net.constant(net.rng.integers(-900, 900, 8).astype(np.int32))
        end = net.constant(net.rng.integers(-900, 900, 5).astype(np.int32))
        start = len(net.nodes)
        q = net.node("QuantizeLinear", "x", *x)
        conv = net.node("QLinearConv", q, *x, *first, *y, bias, pads=[1, 1, 1, 1])
        add = net.node("QLinearAdd", conv, *y, conv, *y, *z, domain="com.microsoft")
        pool = net.node(
            "QLinearGlobalAveragePool", add, *z, *p, domain="com.microsoft", channels_last=0
        )
        gemm = net.node(
            "QGemm", net.node("Flatten", pool), *p, *last, end, *s, domain="com.microsoft", transB=1
        )
        written = net.model(net.node("DequantizeLinear", gemm, *s))
        del net.nodes[start:]

        def pair(value, numbers):
            return net.node(
                "DequantizeLinear", net.node("QuantizeLinear", value, *numbers), *numbers
            )

        def fixed(names):
            return net.node("DequantizeLinear", *names, axis=0)

        def of_sums(name, factor, scale):
            value = (np.float64(np.float32(factor)) * scale.astype(np.float64)).astype(np.float32)
            return net.node("DequantizeLinear", name, net.constant(value), axis=0)

        conv = pair(
            net.node(
                "Conv", pair("x", x), fixed(first), of_sums(bias, 0.03, scale), pads=[1, 1, 1, 1]
            ),
            y,
        )
        pool = pair(net.node("GlobalAveragePool", pair(net.node("Add", conv, conv), z)), p)
        flat = net.node("Flatten", pool)
        gemm = net.node("Gemm", flat, fixed(last), of_sums(end, 0.2, last_scale), transB=1)
        return written, net.model(pair(gemm, s))


@pytest.mark.parametrize("per_channel", [True, False])
def test_operators_of_integers_are_the_same_network(per_channel):
    written, expected = Drawn(per_channel).models()
    x = np.random.default_rng(0).normal(size=(1, 4, 6, 6)).astype(np.float32)
    assert has_qoperators(written)
    assert not has_qoperators(expected)
    made = as_qdq(written)
    assert not has_qoperators(made)
    (found,), (wanted,) = run(made, x), run(expected, x)
    np.testing.assert_array_equal(found, wanted)
    assert np.ptp(found) > 0


def test_a_product_of_integers():
    net = quantised.Qdq((3, 4), seed=5)
    of_x, of_y = (
        [net.constant(np.float32(s)), net.constant(np.uint8(z))] for s, z in ((0.03, 99), (0.5, 7))
    )
    names = [
        net.constant(v)
        for v in (np.arange(8, dtype=np.int8).reshape(4, 2), np.float32(0.02), np.int8(1))
    ]
    q = net.node("QuantizeLinear", "x", *of_x)
    product = net.node("QLinearMatMul", q, *of_x, *names, *of_y)
    model = net.model(net.node("DequantizeLinear", product, *of_y))
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32) * 2
    (found,) = run(as_qdq(model), x)
    whole = np.clip(np.rint(x / np.float32(0.03)), -99, 156) @ (np.arange(8).reshape(4, 2) - 1)
    steps = np.clip(
        np.rint(
            np.float32(whole) * np.float32(np.float64(np.float32(0.03)) * np.float32(0.02) / 0.5)
        ),
        -7,
        248,
    )
    np.testing.assert_array_equal(found, np.float32(steps) * np.float32(0.5))


def test_scales_that_are_no_constants_stay_as_they_are():
    net = quantised.Qdq((1, 4))
    numbers = ["s", net.constant(np.uint8(0))]
    net.nodes.append(helper.make_node("Abs", ["x"], ["s"]))
    net.node("QLinearConv", "x", *numbers, "x", *numbers, *numbers)
    model = helper.make_model(helper.make_graph(net.nodes, "g", [net.input], [], net.weights))
    assert [node.op_type for node in as_qdq(model).graph.node] == ["Abs", "QLinearConv"]


def test_dynamic_quantisation_has_the_same_bits_compiled():
    net = quantised.Qdq((5, 12), seed=4)
    values = net.rng.integers(-128, 128, (12, 7)).astype(np.int8)
    weights, zero = net.constant(values), net.constant(np.int8(3))
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]))
    sums = net.node("Cast", net.node("MatMulInteger", "q", weights, "z", zero), to=1)
    scaled = net.node("Mul", sums, net.node("Mul", "s", net.constant(np.float32(0.01))))
    bias = net.constant(net.rng.normal(size=7).astype(np.float32))
    (found,) = assert_same_bits(net.model(net.node("Add", scaled, bias)))
    x = np.random.default_rng(0).normal(size=(5, 12)).astype(np.float32) * 3
    exact = x @ ((values.astype(np.float32) - 3) * np.float32(0.01))
    exact = exact + numpy_helper.to_array(net.weights[-1])
    assert np.abs(found - exact).max() < 0.02 * np.abs(exact).max()


def test_models_are_read_by_onnx():
    made = as_qdq(Drawn(per_channel=True).models()[0])
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(made, strict_mode=True))


@pytest.mark.parametrize("per_channel", [True, False])
def test_a_convolution_of_integers_is_quantised_as_it_runs(tmp_path, per_channel):
    from hetfeat.deploy.verify import reference_of
    from hetfeat.workloads.networks import load_network
    from hetfeat.workloads.relax import import_network

    net = quantised.Qdq((1, 4, 6, 6), seed=6)
    weights = net.constant(net.rng.integers(-128, 128, (8, 4, 3, 3)).astype(np.int8))
    zero = net.constant(net.zero("int8", 8 if per_channel else None))
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]))
    sums = net.node("ConvInteger", "q", weights, "z", zero, pads=[1, 1, 1, 1], strides=[2, 2])
    scale = net.node("Mul", "s", net.constant(np.float32(0.01)))
    path = tmp_path / "dynamic.onnx"
    onnx.save(net.model(net.node("Mul", net.node("Cast", sums, to=1), scale)), str(path))
    network = load_network(str(path))
    if not per_channel:  # ONNX Runtime runs no zero points by channel
        facts = reference_of(network, 0, module=import_network(network)).facts()["integers"]
        assert facts == {"exact": True, "products": 1, "in_float": []}
    (output,) = assert_same_bits(as_imported(network.onnx))
    assert np.ptp(output) > 0
