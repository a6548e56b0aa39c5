"""Networks whose files or operators libraries refuse, and those that only their forms kept out."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from hetfeat.errors import RequestError, WorkFailed
from hetfeat.workloads.example_inputs import computed
from hetfeat.workloads.library_errors import refusals
from hetfeat.workloads.networks import load_network, split_batch

FLOAT = TensorProto.FLOAT


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HETFEAT_HOME", str(tmp_path / "home"))


def save(path: Path, nodes, shape, weights=None, kind=FLOAT, opset=17) -> str:
    """A model of one input `x` and one output `y`."""
    given = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", FLOAT, [f"n{i}" for i, _ in enumerate(shape)])],
        given,
    )
    opsets = [helper.make_opsetid("", opset)]
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    )
    return str(path)


def weights(*shape: int):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def built_error(name: str, batch: int = 1) -> float:
    """Largest error of the lowered network, against the framework it came from."""
    import tvm
    from tvm import relax

    from hetfeat.workloads.relax import as_target, extract_tasks, import_network, lower

    network, target = load_network(name, batch), as_target({"kind": "llvm"})
    lowered = lower(import_network(network), target)
    assert extract_tasks(lowered, target)
    machine = relax.VirtualMachine(tvm.compile(lowered, target), tvm.cpu())
    found = machine["main"](*map(tvm.runtime.tensor, network.arrays()))
    found = found if hasattr(found, "numpy") else found[0]
    return float(np.abs(found.numpy() - computed(network, network.arrays())[0]).max())


node = helper.make_node
CONV = node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])
IMAGE = [1, 3, 8, 8]


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.parametrize("kind", ["Min", "Max", "Sum", "Mean", "Dropout", "Upsample", "Range"])
def test_what_only_our_passes_or_the_opset_kept_out_builds(tmp_path, kind, caplog):
    shape, given, opset = IMAGE, {"w": weights(8, 3, 3, 3), "six": np.float32([0.1])}, 13
    nodes = [CONV, node(kind, ["c", "six"], ["y"])]
    if kind == "Dropout":
        nodes = [CONV, node("Dropout", ["c"], ["d"]), node("GlobalAveragePool", ["d"], ["y"])]
    if kind == "Upsample":
        given = {"s": np.float32([1, 1, 2, 2])}
        nodes, opset = [node("Upsample", ["x", "s"], ["y"])], 9
    if kind == "Range":
        shape = [1, 6, 4]
        given = {"z": np.int64(0), "one": np.int64(1), "table": weights(10, 4)}
        nodes = [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "one"], ["length"]),
            node("Range", ["z", "length", "one"], ["places"]),
            node("Gather", ["table", "places"], ["p"]),
            node("Add", ["x", "p"], ["y"]),
        ]
    used = {name for n in nodes for name in n.input}
    given = {name: np.asarray(value) for name, value in given.items() if name in used}
    with caplog.at_level(logging.WARNING):
        error = built_error(save(tmp_path / "n.onnx", nodes, shape, given, opset=opset))
    assert error < 1e-5
    assert "refuses the network" not in caplog.text


@pytest.mark.slow
@pytest.mark.tvm
def test_a_pass_that_refuses_is_left_out(tmp_path, caplog, monkeypatch):
    import hetfeat.workloads.relax as workloads

    def combine(module):
        raise IndexError("no such layout")

    monkeypatch.setattr(workloads, "combine_siblings", combine)
    product = node("MatMul", ["x", "w"], ["y"])
    name = save(tmp_path / "n.onnx", [product], [2, 4], {"w": weights(4, 4)})
    with caplog.at_level(logging.WARNING):
        assert built_error(name) < 1e-5
    assert "the pass combine refuses the network" in caplog.text


@pytest.mark.slow
@pytest.mark.tvm
def test_a_shape_that_values_decide_is_named_with_its_node(tmp_path):
    from hetfeat.workloads.relax import import_network

    nodes = [node("NonZero", ["x"], ["n"], name="which"), node("Cast", ["n"], ["y"], to=FLOAT)]
    name = save(tmp_path / "n.onnx", nodes, [3, 4])
    with pytest.raises(RequestError, match="node NonZero 'which' of x"):
        import_network(load_network(name))


@pytest.mark.slow
def test_an_input_of_strings_is_named(tmp_path):
    nodes = [node("Cast", ["x"], ["y"], to=FLOAT)]
    name = save(tmp_path / "n.onnx", nodes, [2], kind=TensorProto.STRING)
    with pytest.raises(RequestError, match=r"input 'x' .* tensor\(string\)"):
        load_network(name)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [-1, 0, "n"])
def test_an_open_batch_in_any_writing_is_set(tmp_path, rows):
    name = save(tmp_path / "n@2x.ONNX", [node("Relu", ["x"], ["y"])], [rows, 4])
    assert split_batch(name) == (name, 1)
    assert split_batch(f"{name}@3") == (name, 3)
    assert load_network(name, 3).inputs[0].shape == (3, 4)


class Scaled(torch.nn.Module):
    def forward(self, x, scale=None):
        return torch.relu(x) if scale is None else torch.relu(x) * scale


@pytest.mark.slow
@pytest.mark.tvm
def test_exported_programs_with_named_inputs_and_an_open_batch_build(tmp_path):
    x, path, export = torch.randn(2, 4), tmp_path / "n.pt2", torch.export
    export.save(export.export(Scaled(), (x,), {"scale": torch.randn(4)}), path)
    assert built_error(str(path)) < 1e-6
    rows = {"x": {0: export.Dim("rows", min=1, max=64)}}
    export.save(export.export(Scaled(), (x,), dynamic_shapes=rows), path)
    assert load_network(str(path), 5).inputs[0].shape == (5, 4)
    assert built_error(str(path), 5) < 1e-6


def test_what_a_library_raises_is_one_line_and_its_traceback_a_file(tmp_path):
    with pytest.raises(RequestError, match="which a library refuses") as caught, refusals("n"):
        torch.zeros(2) @ torch.zeros(3)
    assert "\n" not in str(caught.value)
    (kept,) = (tmp_path / "home" / "errors").iterdir()
    assert str(kept) in str(caught.value)
    assert "Traceback" in kept.read_text()


def test_a_defect_of_our_own_says_so(monkeypatch):
    import hetfeat.workloads.networks as networks

    code = compile("def fails(*_): return {}['none']", networks.__file__, "exec")
    found: dict = {}
    exec(code, found)
    monkeypatch.setattr(networks, "_loaded", found["fails"])
    with pytest.raises(WorkFailed, match="hetfeat itself fails"):
        load_network("resnet18")
