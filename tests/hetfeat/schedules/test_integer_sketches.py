"""Our sketch of integer products: the bits of numpy, by an instruction that does not saturate."""

import re

import numpy as np
import pytest
import quantised

from hetfeat.records import Program
from hetfeat.schedules import integer
from hetfeat.schedules.design_space import TaskSpace
from hetfeat.schedules.intrinsics import DOT_8X2_AVX2

pytestmark = [pytest.mark.tvm]

AVX2 = {"kind": "llvm", "mcpu": "znver3", "num-cores": 1}


def products():
    """A 3x3 convolution, one of 1x1 and stride 2, and a product: all of whole pairs and vectors."""
    from tvm.relax.frontend.onnx import from_onnx

    net = quantised.Qdq((1, 4, 8, 8), seed=6)
    value = net.qdq("x", scale=0.03, zero=0)
    for shape, attributes, zero in (
        ((16, 4, 3, 3), {"pads": [1] * 4}, 0),
        ((8, 16, 3, 3), {"pads": [1] * 4}, 7),
        ((16, 8, 1, 1), {"strides": [2, 2]}, 90),
    ):
        weights, _ = net.filters(shape)
        value = net.qdq(net.node("Conv", value, weights, **attributes), scale=2.0, zero=zero)
    rows = net.constant(np.asarray([16, 16]))
    weights, _ = net.filters((16, 24), axis=1)
    product = net.node("MatMul", net.node("Reshape", value, rows), weights)
    return from_onnx(net.model(product))


def drawn(task, target):
    """A program of the sketch."""
    space = TaskSpace(task.module, target, 64)
    assert integer.multiplies_integers(space._unscheduled())
    for seed in range(20):
        for trace, _ in space.sample(4, seed):
            if DOT_8X2_AVX2 in trace:
                return Program(task.task, trace)
    raise AssertionError(f"no program of the sketch for {task.task.shapes}")


def test_the_sketch_has_the_bits_of_numpy():
    import tvm
    from tvm import relax

    from hetfeat.deploy.compile import compile_network
    from hetfeat.devices.profile import DeviceProfile
    from hetfeat.workloads.integer_reference import run_integers
    from hetfeat.workloads.relax import as_target, extract_tasks, lower

    module, target = products(), as_target(AVX2)
    lowered = lower(module, target)
    tasks = extract_tasks(lowered, target)
    of_products = [task for task in tasks if task.task.operator in ("conv2d", "matmul")]
    programs = {task.task.hash: drawn(task, target) for task in of_products}
    assert len(programs) == 4
    made = compile_network(lowered, DeviceProfile("here", "cpu-x86", AVX2, 1), tasks, programs)
    assembly = quantised.assembly(made.executable)
    assert "vpmaddwd" in assembly
    assert not re.findall("vpmaddubsw", assembly)
    x = np.random.default_rng(0).normal(size=(1, 4, 8, 8)).astype(np.float32) * 3
    main = relax.VirtualMachine(made.executable, tvm.cpu())["main"]
    found = main(*map(tvm.runtime.tensor, [x, *made.parameters])).numpy()
    (expected,) = run_integers(module, [x])
    np.testing.assert_array_equal(found, expected)
    assert np.ptp(expected) > 0


@pytest.mark.parametrize("cpu", ["skylake-avx512", "znver4"])
def test_no_rule_for_avx512_saturates(cpu):
    """MetaSchedule's own would take `dot_16x4_avx512` or `dot_16x4_vnni`."""
    from hetfeat.workloads.relax import as_target, extract_tasks, lower

    target = as_target({"kind": "llvm", "mcpu": cpu, "num-cores": 1})
    for task in extract_tasks(lower(products(), target), target):
        for trace, _ in TaskSpace(task.module, target, 64).sample(8, 0):
            assert "dot_16x4" not in trace
