"""TFLite files: LiteRT's answers are TVM's, and what is amiss is said."""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tflite_files

from hetfeat.errors import DataError, HetfeatError, RequestError
from hetfeat.workloads import tflite
from hetfeat.workloads.networks import load_network

pytestmark = pytest.mark.tvm


@pytest.fixture
def convolution(tmp_path):
    return tflite_files.save_convolution(tmp_path / "Conv.tflite")


def test_tvm_computes_what_litert_does(convolution):
    import tvm
    from tvm import relax

    from hetfeat.workloads.relax import as_target, import_network, lower

    network = load_network(str(convolution))
    assert network.kind == "TFLite" and network.name.startswith("conv_")
    (expected,) = network.module(*network.inputs)
    target = as_target({"kind": "llvm"})
    machine = relax.VirtualMachine(
        tvm.compile(lower(import_network(network), target), target), tvm.cpu()
    )
    found = machine["main"](tvm.runtime.tensor(network.inputs[0]))
    found = found if hasattr(found, "numpy") else found[0]
    assert expected.shape == (*tflite_files.SHAPE[:-1], tflite_files.CHANNELS)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)
    assert float(expected.max()) > 1 and float(expected.min()) == 0


def test_the_batch_is_the_file_s_own(convolution):
    with pytest.raises(RequestError, match=r"--batch 2 .* 1 rows"):
        load_network(str(convolution), batch=2)


def test_other_engines_leave_it_out(convolution):
    from hetfeat.deploy import engines

    settings = {"network": str(convolution), "batch": 1, "seed": 0, "threads": 1}
    for engine in (engines.torch_eager, engines.onnxruntime, engines.openvino):
        with pytest.raises(RequestError, match="a network of TFLite"):
            engine(settings)


@pytest.mark.parametrize("content", [b"", b"TFL3", b"....TFL3", b"....TFL3" + bytes(64)])
def test_what_is_no_model_is_told(tmp_path, content):
    path = tmp_path / "net.tflite"
    path.write_bytes(content)
    with pytest.raises(DataError):
        load_network(str(path))


def test_operators_that_tvm_does_not_know_are_named_all_at_once(tmp_path):
    from hetfeat.workloads.relax import import_network

    network = load_network(str(tflite_files.save_unknown(tmp_path / "unknown.tflite")))
    (answer,) = network.module(*network.inputs)
    assert answer.shape == (1, 3)
    with pytest.raises(RequestError) as refused:
        import_network(network)
    assert "DYNAMIC_UPDATE_SLICE" in str(refused.value) and "'RNN'" in str(refused.value)


@pytest.mark.parametrize(
    ("save", "products"), [(tflite_files.save_quantised, 3), (tflite_files.save_moves, 2)]
)
def test_a_quantised_network_is_exact_and_near_litert(tmp_path, save, products):
    import tvm
    from tvm import relax

    from hetfeat.deploy.integers import exact_outputs, quantised
    from hetfeat.workloads.example_inputs import exercised
    from hetfeat.workloads.relax import as_target, import_network, lower

    network = exercised(load_network(str(save(tmp_path / "q.tflite"))), seed=0)
    assert network.inputs[0].dtype == np.int8 and np.ptp(network.inputs[0].astype(int)) > 200
    module, litert = import_network(network), network.module(*network.inputs)
    found = quantised(module)
    assert (found.products, found.in_float) == (products, ())
    draws, inexact = exact_outputs(network, found, [(list(network.inputs), litert)])
    ((_, (exact,)),) = draws
    assert inexact == "" and exact.dtype == np.int8 and np.ptp(exact.astype(int)) > 20
    assert np.abs(exact.astype(int) - litert[0]).max() <= 1  # it rounds by shifts, and more often
    target = as_target({"kind": "llvm"})
    machine = relax.VirtualMachine(tvm.compile(lower(module, target), target), tvm.cpu())
    computed = machine["main"](tvm.runtime.tensor(network.inputs[0]))
    computed = computed if hasattr(computed, "numpy") else computed[0]
    np.testing.assert_array_equal(computed.numpy(), exact)


INTS = partial(np.array, dtype=np.int32)
X = (1, 4, 4, 8)
OPERATORS = {
    "BATCH_MATMUL": ((1, 4, 8), [], (1, 4, 4), {"adjY": True}),
    "DEPTH_TO_SPACE": ((1, 2, 2, 32), [], X, {"blockSize": 2}),
    "ELU": (X, [], X, {}),
    "GATHER": (X, [INTS([2, 0])], (1, 2, 4, 8), {"axis": 1}),
    "GELU": (X, [], X, {}),
    "MIRROR_PAD": (X, [INTS([[0, 0], [1, 1], [1, 1], [0, 0]])], (1, 6, 6, 8), {}),
    "RESIZE_NEAREST_NEIGHBOR": (X, [INTS([8, 8])], (1, 8, 8, 8), {}),
    "REVERSE_V2": (X, [INTS([2])], X, {}),
    "SLICE": (X, [INTS([0, 1, 0, 2]), INTS([1, 2, 4, 4])], (1, 2, 4, 4), {}),
    "SPACE_TO_DEPTH": (X, [], (1, 2, 2, 32), {"blockSize": 2}),
    "SPLIT_V": (X, [INTS([4, 4]), INTS(3)], (1, 4, 4, 4), {"numSplits": 2}),
    "SQUEEZE": (X, [], (4, 4, 8), {"squeezeDims": [0]}),
    "STRIDED_SLICE": (X, [INTS([0, 1, 0, 0]), INTS(X), INTS([1, 2, 1, 1])], (1, 2, 4, 8), {}),
    "TILE": (X, [INTS([1, 2, 1, 1])], (1, 8, 4, 8), {}),
    "TRANSPOSE": (X, [INTS([0, 3, 1, 2])], (1, 8, 4, 4), {}),
    "UNPACK": (X, [], (1, 4, 8), {"axis": 1, "num": 4}),
}
"""Shape of the tensor, constants, shape of an output, and options of operators on 8 bits."""
OPTIONS = {
    "BATCH_MATMUL": "BatchMatMul",
    "ELU": None,
    "REVERSE_V2": "ReverseV2",
    "SPLIT_V": "SplitV",
}
"""Names of options that are not those of their operators."""


def test_each_operator_in_float_is_tried():
    from hetfeat.workloads.tflite_rewrites import IN_FLOAT

    assert {*OPERATORS, "PACK", "PAD", "SPLIT"} == IN_FLOAT, "those three in `save_moves`"


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_that_tvm_refuses_in_8_bits_is_near_litert(tmp_path, name):
    import tvm
    from ai_edge_litert import schema_py_generated as schema
    from tvm import relax

    from hetfeat.workloads.relax import as_target, import_network, lower

    shape, others, out, settings = OPERATORS[name]
    kind = OPTIONS.get(name, name.title().replace("_", ""))
    options = None if kind is None else getattr(schema, f"{kind}OptionsT")()
    for setting, value in settings.items():
        assert hasattr(options, setting)
        setattr(options, setting, value)
    count = settings.get("numSplits", settings.get("num", 1))
    path = tflite_files.save_operator(tmp_path / "q", name, options, shape, others, (out, count))
    network = load_network(str(path.rename(tmp_path / "q.tflite")))
    pixels = np.random.default_rng(1).integers(-128, 128, shape, np.int8)
    expected = network.module(pixels)
    target = as_target({"kind": "llvm"})
    executable = tvm.compile(lower(import_network(network), target), target)
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(pixels))
    found = [found] if hasattr(found, "numpy") else list(found)
    assert len(found) == len(expected) == count
    for one, wanted in zip(found, expected, strict=True):
        assert np.ptp(wanted.astype(int)) > 10
        assert np.abs(one.numpy().astype(int) - wanted).max() <= 1


def test_each_program_of_a_quantised_network_has_the_bits_of_numpy(tmp_path, device):
    """Its stride of 2 is padded below and to the right alone."""
    import tvm
    from tvm import relax

    from hetfeat.deploy.compile import compile_network
    from hetfeat.records import Program
    from hetfeat.schedules.design_space import TaskSpace
    from hetfeat.workloads.integer_reference import run_integers
    from hetfeat.workloads.relax import as_target, extract_tasks, import_network, lower

    module = import_network(load_network(str(tflite_files.save_quantised(tmp_path / "q.tflite"))))
    target = as_target(device.target)
    lowered = lower(module, target)
    tasks = extract_tasks(lowered, target)
    pixels = np.random.default_rng(1).integers(-128, 128, tflite_files.SHAPE, np.int8)
    (expected,) = run_integers(module, [pixels])
    for seed in range(3):
        traces = {task: next(TaskSpace(task.module, target, 64).sample(1, seed)) for task in tasks}
        programs = {
            task.task.hash: Program(task.task, trace) for task, (trace, _) in traces.items()
        }
        made = compile_network(lowered, device, tasks, programs)
        main = relax.VirtualMachine(made.executable, tvm.cpu())["main"]
        found = main(*map(tvm.runtime.tensor, [pixels, *made.parameters]))
        found = found if hasattr(found, "numpy") else found[0]
        np.testing.assert_array_equal(found.numpy(), expected)


def test_an_input_quantised_without_a_scale_is_refused(tmp_path):
    from ai_edge_litert import schema_py_generated as schema

    path = tflite_files.save_convolution(tmp_path / "q.tflite", kind=schema.TensorType.INT8)
    with pytest.raises(HetfeatError):
        load_network(str(path))


@pytest.mark.parametrize("scale", [0.0, -0.5, float("nan"), float("inf")])
def test_a_scale_that_is_no_size_is_refused(tmp_path, scale):
    path = tflite_files.save_quantised(tmp_path / "q.tflite", scale=scale)
    with pytest.raises(
        DataError, match=f"'x' quantised with a scale of {scale:g}; expected finite"
    ):
        load_network(str(path))


def test_tensors_of_16_bits_are_refused_by_name():
    """As LiteRT tells of them in a file of activations of 16 bits."""
    scales = {"scales": np.ones(1, np.float32)}
    tensors = [
        {"name": "bias", "dtype": np.int32, "quantization_parameters": scales},
        {"name": "x", "dtype": np.int16, "quantization_parameters": scales},
    ]
    tflite._check_quantised(Path("q.tflite"), tensors[:1])
    with pytest.raises(DataError, match="'x' quantised to int16; expected int8 or uint8"):
        tflite._check_quantised(Path("q.tflite"), tensors)


@pytest.mark.parametrize("name", ["ai_edge_litert.interpreter", "tflite"])
def test_a_missing_package_is_named_with_the_extra(convolution, monkeypatch, name):
    from hetfeat.workloads.relax import import_network

    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RequestError, match=r"hetfeat\[tflite\]"):
        import_network(load_network(str(convolution)))
