"""Inputs that exercise a network, and a reference that tells a wrong one from it."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from hetfeat.deploy.runtime import largest_error
from hetfeat.deploy.verify import reference_of, refuse_wrong_import, verify
from hetfeat.errors import RequestError, WorkFailed
from hetfeat.workloads.example_inputs import values_of
from hetfeat.workloads.network import Network
from hetfeat.workloads.networks import load_network

ROWS = 50


def save(path: Path, nodes, inputs, output, weights=()) -> Path:
    """An ONNX model of inputs, each (name, type, shape)."""
    given = [helper.make_tensor_value_info(*value) for value in inputs]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)]
    held = [numpy_helper.from_array(value, name) for name, value in weights]
    graph = helper.make_graph(nodes, "g", given, made, held)
    opset = [helper.make_opsetid("", 17)]
    path.write_bytes(
        helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    )
    return path


@pytest.fixture
def bert(tmp_path) -> Path:
    """Token ids, added to an offset before they are looked up, beside a mask and token types."""
    table = np.random.default_rng(0).standard_normal((ROWS, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Add", ["input_ids", "offset"], ["moved"]),
        helper.make_node("Gather", ["words", "moved"], ["e"]),
        helper.make_node("Gather", ["kinds", "types"], ["t"]),
        helper.make_node("Add", ["e", "t"], ["x"]),
        helper.make_node("Cast", ["kept"], ["m"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["m", "last"], ["mu"]),
        helper.make_node("Mul", ["x", "mu"], ["y"]),
    ]
    weights = [("words", table), ("kinds", table[:2]), ("offset", np.array(2, np.int64))]
    weights.append(("last", np.array([-1], np.int64)))
    inputs = [(name, TensorProto.INT64, (1, 6)) for name in ("input_ids", "kept", "types")]
    return save(tmp_path / "bert.onnx", nodes, inputs, (1, 6, 4), weights)


def test_indices_stay_in_their_table_and_masks_are_ones_then_zeros(bert):
    network = load_network(str(bert))
    words, mask, types = values_of(network)
    assert (words.low, words.high) == (0, 32) and words.high + 2 <= ROWS
    assert mask.mask and (types.low, types.high) == (0, 2)
    reference = reference_of(network, seed=0)
    assert reference.tells and len(reference.samples) == 4
    ids, kept, _ = reference.samples[0].inputs
    assert len(np.unique(ids)) > 1 and kept.all()
    for sample in reference.samples[1:]:
        assert sample.inputs[1][0, 0] == 1 and (np.diff(sample.inputs[1]) <= 0).all()
    assert any(0 in sample.inputs[1] for sample in reference.samples[1:])


def test_a_wrong_network_of_integers_is_refused(bert):
    reference = reference_of(load_network(str(bert)), seed=0)
    wrong = SimpleNamespace(run=lambda inputs: np.zeros((1, 6, 4), np.float32))
    with pytest.raises(WorkFailed, match="off by"):
        verify(wrong, reference)


def test_two_indices_that_are_added_fit_together(tmp_path):
    nodes = [
        helper.make_node("Add", ["a", "b"], ["i"]),
        helper.make_node("Gather", ["w", "i"], ["y"]),
    ]
    table = np.random.default_rng(0).standard_normal((ROWS, 4)).astype(np.float32)
    inputs = [(name, TensorProto.INT64, (6,)) for name in "ab"]
    path = save(tmp_path / "x.onnx", nodes, inputs, (6, 4), [("w", table)])
    a, b = values_of(load_network(str(path)))
    assert a.high > 1 and a.high - 1 + b.high - 1 < ROWS


def test_an_image_is_of_its_whole_range(tmp_path):
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)]
    path = save(tmp_path / "x.onnx", nodes, [("x", TensorProto.UINT8, (1, 16, 16))], (1, 16, 16))
    (sample, *_) = reference_of(load_network(str(path)), seed=0).samples
    assert sample.inputs[0].min() < 8 and sample.inputs[0].max() > 247


@pytest.mark.parametrize(("least", "finite"), [(1.0, True), (2.0, False)])
def test_outputs_that_are_no_numbers_are_refused_unless_another_is_one(tmp_path, least, finite):
    """The logarithm of a sum of a mask of ones and zeros, of which only ones are enough."""
    nodes = [
        helper.make_node("ReduceMin", ["mask"], ["s"], keepdims=0),
        helper.make_node("Sub", ["s", "least"], ["d"]),
        helper.make_node("Sqrt", ["d"], ["q"]),
        helper.make_node("Add", ["x", "q"], ["y"]),
    ]
    inputs = [("x", TensorProto.FLOAT, (1, 6)), ("mask", TensorProto.FLOAT, (1, 6))]
    weights = [("least", np.array(least, np.float32))]
    network = load_network(str(save(tmp_path / "x.onnx", nodes, inputs, (1, 6), weights)))
    if finite:
        assert len(reference_of(network, seed=0).samples) >= 1
    else:
        with pytest.raises(RequestError, match="not a finite number"):
            reference_of(network, seed=0)


class Computing(torch.nn.Module):
    """A network of one function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


@pytest.mark.parametrize(
    "function", [lambda x: x * 0, lambda x: x * 0 + 3, lambda x: x * 0.1 + 1e6]
)
def test_an_output_that_hardly_changes_tells_nothing(function):
    assert not reference_of(Network("n", Computing(function), (torch.randn(1, 9),)), 0).tells


def test_the_tolerance_rests_on_what_changes_not_on_a_large_constant():
    network = Network("n", Computing(lambda x: 1e6 + 1000 * x), (torch.randn(1, 64),))
    reference = reference_of(network, 0)
    assert reference.tells and reference.tolerance < 40  # a ten-thousandth of a million is 100
    off = SimpleNamespace(run=lambda inputs: (1e6 + 1000 * inputs[0] + 50).astype(np.float32))
    with pytest.raises(WorkFailed, match="off by"):
        verify(off, reference)
    right = SimpleNamespace(run=lambda inputs: (1e6 + 1000 * inputs[0]).astype(np.float32))
    verify(right, reference)


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        ([INF, -INF, 1], [INF, -INF, 1], 0),
        ([INF, 1], [-INF, 1], INF),
        ([NAN, 1], [2, 1], INF),
        ([1, 2], [NAN, 2], INF),
        ([[1, 1]], [1, 1], INF),
        (np.array([0], np.uint8), np.array([1], np.uint8), 1),
    ],
)
def test_equal_infinities_are_equal_and_nan_is_never(found, expected, error):
    assert largest_error(np.asarray(found), np.asarray(expected)) == error


@pytest.mark.parametrize("output", [np.ones((1, 3)), np.ones((2, 2))])
def test_a_wrong_import_is_told_with_its_output_and_what_is_allowed(tmp_path, output):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    path = save(tmp_path / "x.onnx", nodes, [("x", TensorProto.FLOAT, (1, 3))], (1, 3))
    reference = reference_of(load_network(str(path)), seed=0)
    with pytest.raises(WorkFailed, match=r"output 'y' is off by .* before any tuning.* at most"):
        refuse_wrong_import(SimpleNamespace(run=lambda inputs: output), reference)


def test_a_network_that_its_framework_refuses_is_one_line():
    def fail(x):
        raise ValueError("first\nsecond")

    with pytest.raises(RequestError, match=r"does not run \(first\)"):
        reference_of(Network("n", Computing(fail), (torch.ones(1, 2),)), 0)


@pytest.mark.slow
@pytest.mark.tvm
def test_an_input_without_dimensions_becomes_a_bundle(tmp_path):
    from built import build

    from hetfeat.deploy.runtime import LoadedBundle

    weight = np.eye(4, dtype=np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Mul", ["m", "t"], ["y"]),
    ]
    inputs = [("x", TensorProto.FLOAT, (2, 4)), ("t", TensorProto.FLOAT, ())]
    path = save(tmp_path / "x.onnx", nodes, inputs, (2, 4), [("w", weight)])
    onnx.checker.check_model(onnx.load(str(path)))
    folder = build(tmp_path / "bundle", str(path))
    manifest = folder / "bundle.json"  # the helper says that any number of rows runs
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"any_rows": False}))
    loaded = LoadedBundle(folder)
    assert loaded.manifest["inputs"][1]["shape"] == []
    error, allowed = loaded.check()
    assert error <= allowed
