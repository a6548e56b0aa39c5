"""Our sketches of integer products: numpy's bits, by instructions that do not saturate."""

import re
import subprocess
import sys

import digested
import numpy as np
import pytest
import quantised
from integer_networks import (
    AMX,
    AVX2,
    AVX512,
    VNNI,
    compiled_by_sketches,
    drawn,
    is_of_sketches,
    on,
    on_arm,
    tasks_of,
)

from hetfeat.schedules.design_space import TaskSpace

pytestmark = [pytest.mark.tvm]


def products(side=8, dtype="uint8", deep=4):
    """Convolutions of 3x3, one of 1x1 and stride 2, a product: of whole groups and vectors."""
    from tvm.relax.frontend.onnx import from_onnx

    net = quantised.Qdq((1, deep, side, side), seed=6)
    value = net.qdq("x", dtype, scale=0.03, zero=0)
    for shape, attributes, zero in (
        ((16, deep, 3, 3), {"pads": [1] * 4}, 0),
        ((16, 16, 3, 3), {"pads": [1] * 4}, 7),
        ((16, 16, 1, 1), {"strides": [2, 2]}, 90),
    ):
        weights, _ = net.filters(shape)
        value = net.node("Conv", value, weights, **attributes)
        value = net.qdq(value, dtype, scale=2.0, zero=zero)
    rows = net.constant(np.asarray([-1, 16]))
    weights, _ = net.filters((16, 32), axis=1)
    product = net.node("MatMul", net.node("Reshape", value, rows), weights)
    return from_onnx(net.model(product))


def products_of_tensors(tokens, dtype):
    """The scores of two heads, and what they weigh: neither factor is a constant."""
    from tvm.relax.frontend.onnx import from_onnx

    net = quantised.Qdq((1, tokens, 32), seed=8)
    value = net.qdq("x", dtype, scale=0.03, zero=5)
    heads = net.node("Reshape", value, net.constant(np.asarray([1, tokens, 2, 16])))
    queries, keys = (
        net.node("Transpose", heads, perm=order) for order in ([0, 2, 1, 3], [0, 2, 3, 1])
    )
    scores = net.qdq(net.node("MatMul", queries, keys), dtype, scale=0.5, zero=9)
    return from_onnx(net.model(net.node("MatMul", scores, queries)))


@pytest.mark.parametrize(
    ("cpu", "side", "dtype", "deep"),
    [
        (AVX2, 8, "uint8", 4),
        (AVX2, 17, "uint8", 4),  # 18 rows are computed
        (VNNI, 17, "uint8", 4),
        (VNNI, 8, "uint8", 3),
        (VNNI, 8, "int8", 3),
        (VNNI, 17, "int8", 4),
        (AMX, 17, "uint8", 32),
        (AMX, 17, "int8", 32),
        (AMX, 14, "uint8", 48),
        (AMX, 8, "uint8", 20),  # a step of 20 products
    ],
)
def test_the_sketches_have_the_bits_of_numpy(cpu, side, dtype, deep):
    check_bits(products(side, dtype, deep), cpu, (1, deep, side, side), products=4)


@pytest.mark.parametrize("cpu", [AVX2, AVX512, VNNI])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("tokens", [32, 48])
def test_products_of_two_tensors_have_the_bits_of_numpy(cpu, dtype, tokens):
    check_bits(products_of_tensors(tokens, dtype), cpu, (1, tokens, 32), products=2)


def check_bits(module, cpu, shape, products):
    import tvm
    from tvm import relax

    from hetfeat.workloads.integer_reference import run_integers

    if cpu not in digested.cpus_here():
        pytest.skip(f"runs what {cpu} has")
    made, found = compiled_by_sketches(module, on(cpu))
    assert found == products
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32) * 3
    main = relax.VirtualMachine(made.executable, tvm.cpu())["main"]
    found = main(*map(tvm.runtime.tensor, [x, *made.parameters])).numpy()
    (expected,) = run_integers(module, [x])
    np.testing.assert_array_equal(found, expected)
    assert np.ptp(expected) > 0


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("cpu", "instruction", "register"),
    [
        ("znver3", "vpmaddwd", "ymm"),
        ("skylake-avx512", "vpmaddwd", "zmm"),
        ("znver4", "vpdpbusd", "zmm"),
        ("alderlake", "vpdpbusd", "ymm"),
        ("sapphirerapids", "tdpbusd", "tmm"),
    ],
)
def test_each_cpu_has_its_instruction_and_none_saturates(cpu, instruction, register, dtype):
    made, found = compiled_by_sketches(products(dtype=dtype), on(cpu))
    assert found == 4
    assembly = quantised.assembly(made.executable)
    assert re.search(rf"{instruction}\s.*{register}", assembly)
    assert "vpmaddubsw" not in assembly


@pytest.mark.parametrize(
    ("cpu", "instruction"),
    [
        ("znver3", r"vpmaddwd\s.*ymm"),
        ("skylake-avx512", r"vpmaddwd\s.*zmm"),
        ("znver4", r"vpdpwssd\s.*zmm"),
    ],
)
def test_pairs_of_two_tensors_are_an_instruction(cpu, instruction):
    """LLVM makes one of a product and a sum where the CPU has it."""
    made, found = compiled_by_sketches(products_of_tensors(32, "uint8"), on(cpu))
    assert found == 2
    assert re.search(instruction, quantised.assembly(made.executable))


@pytest.mark.parametrize(
    ("cpu", "dtype", "instruction"),
    [
        ("cortex-a76", "uint8", "sdot"),
        ("cortex-a76", "int8", "sdot"),
        ("neoverse-n2", "uint8", "usdot"),
        ("neoverse-n2", "int8", "sdot"),
    ],
)
def test_an_arm_adds_four_products_at_once(cpu, dtype, instruction):
    import tvm

    from hetfeat.schedules.design_space import replay
    from hetfeat.workloads.relax import as_target

    target = as_target(on_arm(cpu))
    _, tasks = tasks_of(products(dtype=dtype), target)
    found = [task for task in tasks if is_of_sketches(task, target)]
    assert len(found) == 4
    for task in found:
        module = replay(task.module, drawn(task, target).trace).mod
        assembly = quantised.assembly(tvm.compile(module, target))
        assert re.search(rf"\b{instruction}\s+v\d+\.4s", assembly)


@pytest.mark.parametrize(
    ("cpu", "narrow"), [(VNNI, "hetfeat_dot_8x4"), (AVX512, "hetfeat_dot_8x2")]
)
def test_images_and_half_vectors_of_channels_have_the_sketches_too(cpu, narrow):
    """Three channels become four, and 24 are three registers of half the width."""
    from tvm.relax.frontend.onnx import from_onnx

    from hetfeat.workloads.relax import as_target, extract_tasks, lower

    net = quantised.Qdq((1, 3, 16, 16), seed=7)
    value = net.qdq("x", scale=0.03, zero=9)
    for shape in ((24, 3, 3, 3), (32, 24, 1, 1)):
        weights, _ = net.filters(shape)
        value = net.qdq(net.node("Conv", value, weights, pads=[shape[-1] // 2] * 4), scale=2.0)
    target = as_target(on(cpu))
    tasks = extract_tasks(lower(from_onnx(net.model(value)), target), target)
    traces = [drawn(task, target).trace for task in tasks if task.task.operator == "conv2d"]
    assert sorted(narrow in trace for trace in traces) == [False, True]


def test_what_is_rounded_is_rounded_in_whole_vectors():
    """As sums with a large number: TVM takes a rounding apart, and all that is fused with it."""
    made, _ = compiled_by_sketches(products(), on("znver3"))
    assembly = quantised.assembly(made.executable)
    assert re.search(r"vpsubd\s.*ymm|vpaddd\s.*ymm", assembly)
    assert not re.search(r"vround[ps]s|vaddss", assembly)


@pytest.mark.parametrize("cpu", ["skylake-avx512", "znver4"])
def test_no_rule_for_avx512_saturates(cpu):
    """MetaSchedule's own would take `dot_16x4_avx512` or `dot_16x4_vnni`."""
    from hetfeat.workloads.relax import as_target, extract_tasks, lower

    target = as_target(on(cpu))
    for task in extract_tasks(lower(products(), target), target):
        for trace, _ in TaskSpace(task.module, target, 64).sample(8, 0):
            assert '"dot_16x4' not in trace


def test_intrinsics_are_parsed_without_a_search_of_all_modules():
    """TVM asks `inspect` of each frame of Python's importer, whose files no module has."""
    code = (
        "import inspect\n"
        "from hetfeat.schedules.intrinsics import load_for_cpu\n"
        "real, searched = inspect.getmodule, []\n"
        "def told(of, filename=None):\n"
        "    found = real(of, filename)\n"
        "    if found is None and str(filename).startswith('<frozen'):\n"
        "        searched.append(filename)\n"
        "    return found\n"
        "inspect.getmodule = told\n"
        "load_for_cpu()\n"
        "print(len(searched))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
