"""Quantised networks compiled for CPUs of several instruction sets, beside numpy."""

import numpy as np
import onnx

SSE, AVX2, VNNI, AVX512 = "nehalem", "haswell", "cascadelake", "skylake-avx512"
AMX = "sapphirerapids"
"""CPUs of Intel: LLVM moves elements by SSE4A where a CPU of AMD has it, and no other has."""


def on(cpu):
    return {"kind": "llvm", "mcpu": cpu, "num-cores": 1}


def on_arm(cpu):
    return {**on(cpu), "mtriple": "aarch64-linux-gnu"}


def lowered(module, cpu):
    import tvm

    from hetfeat.workloads.relax import lower

    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": 1})
    return lower(module, target), target


def compiled(module, cpu):
    import tvm

    return tvm.compile(*lowered(module, cpu))


def tasks_of(module, target):
    """A lowered network, and its tasks."""
    from hetfeat.workloads.relax import extract_tasks, lower

    lowered = lower(module, target)
    return lowered, extract_tasks(lowered, target)


def is_of_sketches(task, target):
    from tvm.s_tir import Schedule

    from hetfeat.schedules import dot_products

    return dot_products.instruction_for(Schedule(task.module), target) is not None


def drawn(task, target):
    """A program of an integer sketch of ours."""
    from hetfeat.records import Program
    from hetfeat.schedules.design_space import TaskSpace

    space = TaskSpace(task.module, target, 64)
    for seed in range(20):
        for trace, _ in space.sample(4, seed):
            if "hetfeat_" in trace:
                return Program(task.task, trace)
    raise AssertionError(f"no program of the sketch for {task.task.shapes}")


def compiled_by_sketches(module, on):
    """A network whose integer products have sketches of ours, and how many of them there are."""
    from hetfeat.deploy.compile import compile_network
    from hetfeat.devices.profile import DeviceProfile
    from hetfeat.workloads.relax import as_target

    target = as_target(on)
    lowered, tasks = tasks_of(module, target)
    products = [task for task in tasks if is_of_sketches(task, target)]
    programs = {task.task.hash: drawn(task, target) for task in products}
    profile = DeviceProfile("there", "cpu-arm" if "mtriple" in on else "cpu-x86", on, 1)
    return compile_network(lowered, profile, tasks, programs), len(programs)


def imported(model):
    from tvm.relax.frontend.onnx import from_onnx

    from hetfeat.workloads.passes.name_pads import name_pads

    onnx.checker.check_model(model)
    return name_pads(from_onnx(model))


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
