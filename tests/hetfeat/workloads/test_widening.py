"""Quantised tensors in 16 bits between kernels, where an instruction multiplies those."""

import numpy as np
import pytest
import quantised
from integer_networks import AVX2, AVX512, SSE, VNNI, assert_same_bits, imported, lowered

pytestmark = [pytest.mark.tvm]


def types_between_kernels(model, cpu):
    """The types of what kernels compute."""
    from hetfeat.workloads.passes.integers import bindings

    made, _ = lowered(imported(model), cpu)
    calls = [one for one in bindings(made) if hasattr(one.value, "args") and len(one.value.args)]
    return {str(one.var.ty.dtype) for one in calls if hasattr(one.var.ty, "dtype")}


@pytest.mark.parametrize("cpu", [SSE, AVX2, AVX512])
def test_tensors_have_16_bits_without_vnni(cpu):
    types = types_between_kernels(quantised.small_network(), cpu)
    assert "int16" in types
    assert not types & {"uint8", "int8"}


@pytest.mark.parametrize("cpu", [VNNI, "alderlake"])
def test_tensors_have_8_bits_with_vnni(cpu):
    types = types_between_kernels(quantised.small_network(), cpu)
    assert "uint8" in types
    assert "int16" not in types


def test_an_output_keeps_its_type():
    net = quantised.Qdq((1, 4, 8, 8), seed=3)
    value = net.qdq("x", scale=0.03, zero=128)
    weights, _ = net.filters((16, 4, 3, 3))
    value = net.qdq(net.node("Conv", value, weights), scale=0.8, zero=90)
    weights, _ = net.filters((16, 16, 1, 1))
    value = net.node("Conv", value, weights)
    scale, zero = net.constant(np.float32(60)), net.constant(np.uint8(100))
    output = net.node("QuantizeLinear", value, scale, zero)
    (found,) = assert_same_bits(net.model(output, net.node("Relu", value)), cpus=(AVX2,))[:1]
    assert found.dtype == np.uint8
    assert np.ptp(found) > 0


def test_an_odd_number_of_channels_is_multiplied_in_pairs():
    """The three of an image, a pad of zero points around them."""
    from hetfeat.workloads.relax import extract_tasks

    net = quantised.Qdq((1, 3, 9, 9), seed=3)
    value = net.qdq("x", scale=0.03, zero=120)
    weights, _ = net.filters((16, 3, 3, 3))
    convolved = net.node("Conv", value, weights, pads=[1, 1, 1, 1], strides=[2, 2])
    model = net.model(net.qdq(convolved, scale=0.8, zero=9))
    (found,) = assert_same_bits(model)
    assert np.ptp(found) > 0
    tasks = extract_tasks(*lowered(imported(model), AVX2))
    shapes = [task.task.shapes for task in tasks if task.task.operator == "conv2d"]
    assert [of[:2] for of in shapes] == [((1, 9, 9, 4), (3, 3, 4, 16))]
