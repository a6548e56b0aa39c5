"""Functions of float32 in quantised networks: near what they are, and the same bits everywhere."""

import math
import re
import types

import numpy as np
import pytest
import quantised
import torch
from integer_networks import (
    AVX2,
    AVX512,
    SSE,
    assert_same_bits,
    compiled,
    imported,
    inputs_of,
    lowered,
)

from hetfeat.workloads import exact_formulas as formulas
from hetfeat.workloads.integer_functions import FUNCTIONS, OF_NUMPY, exact_mean

X = np.linspace(-12, 12, 4001).astype(np.float32)
WIDE = np.linspace(-87, 88, 4001).astype(np.float32)
ROWS = (np.random.default_rng(1).normal(size=(4, 197)) * 5).astype(np.float32)


def attributes(**values):
    return types.SimpleNamespace(attrs=types.SimpleNamespace(**values))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("erf", [math.erf(x) for x in X.tolist()]),
        ("nn.gelu", [x * (1 + math.erf(x * math.sqrt(0.5))) / 2 for x in X.tolist()]),
        ("nn.silu", [x / (1 + math.exp(-x)) for x in X.tolist()]),
        ("sigmoid", [1 / (1 + math.exp(-x)) for x in X.tolist()]),
        ("tanh", np.tanh(X.astype(np.float64))),
    ],
)
def test_formulas_are_near_the_functions(name, expected):
    found = formulas.ELEMENTWISE[name](OF_NUMPY, X)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=5e-7, atol=2e-6)


def test_the_exponential_over_its_whole_range():
    found = formulas.exponential(OF_NUMPY, WIDE)
    np.testing.assert_allclose(found, np.exp(WIDE.astype(np.float64)), rtol=2e-7)
    beyond = formulas.exponential(OF_NUMPY, np.float32([-np.inf, -100, 100, np.nan]))
    assert np.isfinite(beyond).all()


def test_sums_of_rows_are_near_those_of_float64():
    exact = ROWS.astype(np.float64)
    np.testing.assert_allclose(exact_mean(ROWS, (1,)), exact.mean(1, keepdims=True), atol=1e-6)
    grown = np.exp(exact - exact.max(1, keepdims=True))
    found = FUNCTIONS["nn.softmax"](attributes(axis=-1), ROWS)
    np.testing.assert_allclose(found, grown / grown.sum(1, keepdims=True), atol=5e-6)
    gamma, beta = (np.full(197, number, np.float32) for number in (2.0, -1.0))
    found = FUNCTIONS["nn.layer_norm"](attributes(axes=[-1], epsilon=1e-5), ROWS, gamma, beta)
    deviation = exact - exact.mean(1, keepdims=True)
    expected = 2 * deviation / np.sqrt(exact.var(1, keepdims=True) + 1e-5) - 1
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 128, 197, 5000, 1 << 20])
def test_sums_of_steps_fit_31_bits(count):
    assert count * 2 ** formulas.counted_bits(count) < 2**31


def test_the_order_of_a_sum_does_not_matter():
    turned = ROWS[:, np.random.default_rng(2).permutation(197)]
    np.testing.assert_array_equal(exact_mean(ROWS, (1,)), exact_mean(turned, (1,)))
    assert (exact_mean(np.zeros((2, 3), np.float32), (0, 1)) == 0).all()


def network(kind, shape=(2, 3, 20), **more):
    net = quantised.Qdq(shape, seed=5, opset=20)
    x = net.qdq("x", scale=0.05, zero=120)
    if kind == "LayerNormalization":
        vectors = [net.constant(net.rng.normal(size=20).astype(np.float32)) for _ in range(2)]
        return net.model(net.node(kind, x, *vectors))
    if kind == "ReduceMean":
        axes = net.constant(np.int64([1, 2]))
        return net.model(net.node(kind, net.node("Sigmoid", x), axes, **more))
    return net.model(net.node("Mul", net.node(kind, x, **more), net.constant(np.float32(0.7))))


@pytest.mark.tvm
@pytest.mark.parametrize(
    "kind",
    [
        *("Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LayerNormalization", "Sigmoid"),
        *("Softmax", "Sqrt", "Tanh"),
    ],
)
def test_each_function_has_the_same_bits_everywhere(kind):
    (output,) = assert_same_bits(network(kind))
    assert np.nanstd(output) > 0


@pytest.mark.tvm
@pytest.mark.parametrize("tokens", [16, 61])
def test_an_attention_of_whole_vectors_has_the_bits_of_what_was_padded(tokens):
    net = quantised.Qdq((2, tokens, 8), seed=5)
    x = net.qdq("x", scale=0.05)
    keys = net.qdq(net.node("Transpose", x, perm=[0, 2, 1]))
    scores = net.node("Mul", net.node("MatMul", x, keys), net.constant(np.float32(0.3)))
    shares = net.qdq(net.node("Softmax", scores, axis=-1), scale=0.004, zero=3)
    model = net.model(net.node("MatMul", shares, x))
    assert ("int64(64)" in lowered(imported(model), AVX2)[0].script()) == (tokens == 61)
    (output,) = assert_same_bits(model)
    assert output.std() > 0


@pytest.mark.tvm
@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_mean_of_float32(keepdims):
    (output,) = assert_same_bits(network("ReduceMean", keepdims=keepdims))
    assert output.shape == ((2, 1, 1) if keepdims else (2,))


@pytest.mark.tvm
@pytest.mark.parametrize("pads", [0, 1])
def test_an_average_of_windows_is_one_of_integers(pads):
    from hetfeat.workloads.passes.integer_products import find_products

    net = quantised.Qdq((1, 4, 8, 8), seed=6)
    x = net.qdq("x", scale=0.05, zero=90)
    options = {"kernel_shape": [3, 3], "pads": [pads] * 4, "count_include_pad": 1}
    made = net.qdq(net.node("AveragePool", x, **options), scale=0.03, zero=100)
    model = net.model(made)
    (output,) = assert_same_bits(model)
    assert np.ptp(output) > 0
    assert find_products(imported(model)) == []


@pytest.mark.tvm
@pytest.mark.parametrize("cpu", [AVX2, pytest.param(AVX512, marks=pytest.mark.slow)])
def test_no_function_is_contracted_or_called_from_a_library(cpu):
    for kind in ("Gelu", "LayerNormalization", "Softmax"):
        text = quantised.assembly(compiled(imported(network(kind)), cpu))
        assert "vmulps" in text or "vmulss" in text
        assert not re.findall(r"vfn?m(?:add|sub)\d+[ps]s|expf|erff|tanhf|vrsqrt", text)


@pytest.mark.tvm
@pytest.mark.slow
def test_a_layer_of_a_transformer_is_exact_throughout():
    from hetfeat.deploy.calibration import of_arrays
    from hetfeat.deploy.quantise import quantised_network
    from hetfeat.deploy.verify import reference_of
    from hetfeat.workloads.network import Network
    from hetfeat.workloads.relax import import_network
    from hetfeat.workloads.transformers import EncoderLayer

    torch.manual_seed(0)
    layer = Network("layer", EncoderLayer(32, 2).eval(), (torch.randn(1, 12, 32),))
    rows = np.random.default_rng(0).normal(size=(20, 12, 32)).astype(np.float32)
    made, accuracy = quantised_network(layer, of_arrays([rows]))
    facts = reference_of(made, 0, module=import_network(made)).facts()["integers"]
    assert facts == {"exact": True, "products": 8, "in_float": []}
    assert accuracy.snr_db > 20
    assert_same_bits(made.onnx, cpus=(AVX2, SSE), inputs=inputs_of(made.onnx))
