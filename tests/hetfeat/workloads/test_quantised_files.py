"""Quantised files that cannot be right, or that are not built: refused in one line, by name."""

import re

import numpy as np
import onnx
import pytest
import quantised
from onnx import TensorProto, helper

from hetfeat.errors import DataError, RequestError
from hetfeat.workloads.networks import load_network

ZERO = np.int8(0)


def saved(folder, net, output):
    path = folder / "net.onnx"
    onnx.save(net.model(output), str(path))
    return str(path)


def product(net, scale=0.01, zero=ZERO, axis=1):
    weights = net.fixed(np.ones((4, 3), np.int8), np.asarray(scale, np.float32), zero, axis)
    return net.node("MatMul", net.qdq("x"), weights)


def test_a_quantised_file_is_loaded(tmp_path):
    net = quantised.Qdq((2, 4))
    network = load_network(saved(tmp_path, net, product(net)))
    assert network.kind == "ONNX"


@pytest.mark.parametrize("scale", [0.0, -0.5, np.nan, np.inf])
def test_scales_that_are_none(tmp_path, scale):
    net = quantised.Qdq((2, 4))
    with pytest.raises(DataError, match=f"a scale of {scale}; expected .*above 0"):
        load_network(saved(tmp_path, net, product(net, scale)))


def test_a_zero_point_outside_its_type(tmp_path):
    net = quantised.Qdq((2, 4))
    output = product(net)
    net.weights[-1] = helper.make_tensor(net.weights[-1].name, TensorProto.INT8, [], [0])
    net.weights[-1].int32_data[0] = 300
    with pytest.raises(DataError, match="a zero point of 300; expected one that int8 holds"):
        load_network(saved(tmp_path, net, output))


def test_a_zero_point_of_another_type(tmp_path):
    net = quantised.Qdq((2, 4))
    with pytest.raises(DataError, match="zero point of uint8 for a tensor of int8"):
        load_network(saved(tmp_path, net, product(net, zero=np.uint8(0))))


@pytest.mark.parametrize(
    ("scales", "axis", "said"),
    [
        (4, 1, "4 scales for axis 1 of [4, 3]; expected 3, or one"),
        (3, 2, "the axis 2 for shape [4, 3]"),
    ],
)
def test_axes_that_do_not_fit(tmp_path, scales, axis, said):
    net = quantised.Qdq((2, 4))
    output = product(net, np.full(scales, 0.5), np.zeros(scales, np.int8), axis=axis)
    with pytest.raises(DataError, match=re.escape(said)):
        load_network(saved(tmp_path, net, output))


def test_four_bits_are_refused_by_name(tmp_path):
    net = quantised.Qdq((2, 4), opset=21)
    output = product(net)
    for weight in net.weights[-3], net.weights[-1]:
        values = np.zeros(tuple(weight.dims)).ravel()
        four = helper.make_tensor(weight.name, TensorProto.INT4, weight.dims, values)
        weight.CopyFrom(four)
    with pytest.raises(RequestError, match="is of int4; expected tensors quantised to int8"):
        load_network(saved(tmp_path, net, output))


def test_blocks_are_refused_by_name(tmp_path):
    net = quantised.Qdq((2, 4), opset=21)
    names = [
        net.constant(value) for value in (np.ones((4, 3), np.int8), np.ones((2, 3), np.float32))
    ]
    weights = net.node("DequantizeLinear", *names, axis=0, block_size=2)
    output = net.node("MatMul", net.qdq("x"), weights)
    with pytest.raises(RequestError, match="is of blocks of a tensor"):
        load_network(saved(tmp_path, net, output))
