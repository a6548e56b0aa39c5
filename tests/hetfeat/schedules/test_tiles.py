"""Products of quantised tensors in AMX's tiles."""

import json
import re
import subprocess
import sys

import digested
import numpy as np
import pytest
import quantised
from integer_networks import AMX, VNNI, drawn, on, tasks_of

pytestmark = [pytest.mark.tvm]

ALONE = """
import sys
import numpy as np, tvm
library = tvm.runtime.load_module(sys.argv[1])
arrays = [np.load(path) for path in sys.argv[2:]]
given = [tvm.runtime.tensor(array) for array in arrays]
library["main"](*given)
np.save(sys.argv[-1], given[-1].numpy())
"""
"""Runs a library as a process does that knows nothing of tiles."""


def network(side=14, channels=64, deep=64, stride=1, kernel=3):
    """A convolution of quantised tensors."""
    from tvm.relax.frontend.onnx import from_onnx

    net = quantised.Qdq((1, deep, side, side), seed=3)
    weights, _ = net.filters((channels, deep, kernel, kernel))
    pads = [kernel // 2] * 4
    value = net.qdq("x", "uint8", scale=0.03, zero=0)
    value = net.node("Conv", value, weights, pads=pads, strides=[stride] * 2)
    return from_onnx(net.model(net.qdq(value, "uint8", scale=2.0, zero=0)))


def product(rows, deep, channels):
    """A product of a quantised matrix and quantised weights."""
    from tvm.relax.frontend.onnx import from_onnx

    net = quantised.Qdq((rows, deep), seed=3)
    weights, _ = net.filters((deep, channels), axis=1)
    value = net.node("MatMul", net.qdq("x", "uint8", scale=0.03, zero=0), weights)
    return from_onnx(net.model(net.qdq(value, "uint8", scale=2.0, zero=0)))


def task_of(cpu, cores=1, matrices=None, **sizes):
    from hetfeat.workloads.relax import as_target

    target = as_target(on(cpu) | {"num-cores": cores})
    _, tasks = tasks_of(product(*matrices) if matrices else network(**sizes), target)
    return next(task for task in tasks if task.task.operator in ("conv2d", "matmul")), target


def sketches(cpu, **given):
    from tvm.s_tir import Schedule

    from hetfeat.schedules import tiles

    task, target = task_of(cpu, **given)
    return tiles.sketches(Schedule(task.module), target)


def blocks(cpu, **sizes):
    found = (sketch.args[0] for sketch in sketches(cpu, **sizes))
    return {(b.along, b.rows, b.channels, b.deep, b.step) for b in found}


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({}, {(1, 14, 4, 64, 1)}),  # two by two, tiles would have 7 rows
        ({"side": 56, "kernel": 1}, {(2, 14, 2, 64, 1)}),
        ({"side": 28, "stride": 2, "channels": 48}, {(1, 14, 3, 64, 2)}),
        ({"side": 7, "deep": 80, "channels": 32}, {(1, 7, 2, 40, 1)}),
        ({"side": 5}, set()),  # too few rows
        ({"deep": 8}, set()),  # too few products
        ({"channels": 24}, set()),  # channels that are no whole tiles
    ],
)
def test_blocks_divide_what_they_are_of(sizes, expected):
    assert blocks(AMX, **sizes) == expected


def test_another_cpu_has_no_tiles():
    assert blocks(VNNI) == set()


@pytest.mark.parametrize(
    ("given", "by_channels"),
    [
        ({}, {False}),
        ({"side": 7, "channels": 128}, {True}),  # seven rows are no equal shares of two cores
        ({"side": 7, "channels": 64}, {False, True}),  # nor is one block of channels
        ({"matrices": (197, 64, 128)}, {False}),
        ({"matrices": (197, 1024, 1024)}, {True}),  # each core would read a megabyte
    ],
)
def test_cores_divide_what_costs_less(given, by_channels):
    assert {sketch.args[2] for sketch in sketches(AMX, cores=2, **given)} == by_channels


@pytest.mark.parametrize(
    ("given", "expected"), [({"side": 28}, {4}), ({"matrices": (197, 1024, 1024)}, {4, 8})]
)
def test_four_cores_have_a_few_equal_shares(given, expected):
    from hetfeat.schedules.design_space import TaskSpace

    task, target = task_of(AMX, cores=4, **given)
    drawn_of = [json.loads(trace) for trace, _ in TaskSpace(task.module, target, 64).sample(16, 0)]
    shares = {
        attributes[0][dict(decisions)[at]]
        for instructions, decisions in drawn_of
        for at, (kind, _, attributes, _) in enumerate(instructions)
        if kind == "SampleCategorical"
    }
    assert shares == expected


def test_tiles_are_configured_where_they_are_not_already():
    """To configure them for each block would take the time of twelve products."""
    import tvm

    from hetfeat.schedules.design_space import replay

    task, target = task_of(AMX)
    assembly = quantised.assembly(
        tvm.compile(replay(task.module, drawn(task, target).trace).mod, target)
    )
    asks, empties, configures = (
        assembly.index(name) for name in ("sttilecfg", "tilezero", "ldtilecfg")
    )
    assert asks < min(empties, configures)


def test_a_library_asks_linux_for_tiles_itself(tmp_path):
    """Or its first kernel would end the process that loads it, in C++ or here."""
    import tvm

    from hetfeat.devices.target import linker
    from hetfeat.schedules.design_space import TaskSpace, as_candidate, replay

    if AMX not in digested.cpus_here():
        pytest.skip("runs what AMX has")
    task, target = task_of(AMX)
    trace = drawn(task, target).trace
    candidate = as_candidate(replay(task.module, trace))
    rng, paths = np.random.default_rng(0), []
    for n, argument in enumerate(candidate.args_info):
        shape, dtype = [int(side) for side in argument.shape], str(argument.dtype)
        paths.append(tmp_path / f"{n}.npy")
        np.save(paths[-1], (rng.random(shape) * 3).astype(dtype))
    module = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(True)(candidate.sch.mod)
    tvm.compile(module, target).export_library(
        str(tmp_path / "kernel.so"), fcompile=linker(on(AMX))
    )
    command = [sys.executable, "-c", ALONE, tmp_path / "kernel.so", *paths]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert np.load(paths[-1]).any()
    assert TaskSpace(task.module, target, 64).features(trace) is not None


def test_a_trace_of_another_process_names_the_tiles_it_needs(tmp_path):
    """Intrinsics are registered as sketches are made; a builder makes none."""
    from hetfeat.workloads.relax import save_workload

    task, target = task_of(AMX)
    program = (
        "import sys; from hetfeat.schedules.design_space import replay;"
        "from hetfeat.workloads.relax import load_workload;"
        "print(replay(load_workload(open(sys.argv[1]).read()), open(sys.argv[2]).read()).mod)"
    )
    files = [tmp_path / name for name in ("workload", "trace")]
    for path, text in zip(
        files, (save_workload(task.module), drawn(task, target).trace), strict=True
    ):
        path.write_text(text)
    command = [sys.executable, "-c", program, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"llvm\.x86\.tdpbusd|call_llvm_intrin", done.stdout)


@pytest.mark.parametrize(
    "name",
    ["uint8_3x7x1x64s1", "uint8_2x7x4x64s1", "uint8_1x17x1x64s1", "uint8_1x7x1x66s1"]
    + ["uint8_1x7x1x0s1", "uint16_1x7x1x64s1", "int8_1x7x1x64s1", "uint8_1x7x1x6s1"],
)
def test_tiles_that_amx_has_not_are_not_registered(name):
    from tvm.s_tir import TensorIntrin

    from hetfeat.schedules.tile_intrinsics import register_named

    register_named(f"hetfeat_tiles_{name}_zero")
    assert TensorIntrin.get(f"hetfeat_tiles_{name}_zero", allow_missing=True) is None
