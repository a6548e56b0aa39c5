"""Quantised networks compiled for CPUs of several instruction sets, beside numpy."""

import numpy as np
import onnx

SSE, AVX2, VNNI, AVX512 = "nehalem", "znver3", "znver4", "skylake-avx512"


def lowered(module, cpu):
    import tvm

    from hetfeat.workloads.relax import lower

    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": 1})
    return lower(module, target), target


def compiled(module, cpu):
    import tvm

    return tvm.compile(*lowered(module, cpu))


def imported(model):
    from tvm.relax.frontend.onnx import from_onnx

    onnx.checker.check_model(model)
    return from_onnx(model)


def ran(module, cpu, inputs):
    import tvm
    from tvm import relax

    main = relax.VirtualMachine(compiled(module, cpu), tvm.cpu())["main"]
    found = main(*map(tvm.runtime.tensor, inputs))
    return [found.numpy()] if hasattr(found, "numpy") else [value.numpy() for value in found]


def inputs_of(model, seed=0):
    sizes = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    return [np.random.default_rng(seed).normal(size=sizes).astype(np.float32) * 3]


def assert_same_bits(model, cpus=(AVX2, SSE), inputs=None):
    from hetfeat.workloads.integer_reference import run_integers

    module, inputs = imported(model), inputs or inputs_of(model)
    expected = run_integers(module, inputs)
    for cpu in cpus:
        for value, wanted in zip(ran(module, cpu, inputs), expected, strict=True):
            assert value.dtype == wanted.dtype
            np.testing.assert_array_equal(value, wanted)
    return expected
