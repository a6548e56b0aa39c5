"""The TVM side of a probe: the target of this CPU, and micro-benchmarks compiled for it.

Run as a program, `python -m hetfeat.devices.tvm TARGET_JSON`, it prints the measured figures as
JSON: measuring wants a process of its own whose `TVM_NUM_THREADS` is set from the start.
"""

import json
import platform
import sys
from typing import Any

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.target import codegen

ISAS = {
    "x86_64": (("avx512f", "avx512", 64), ("avx2", "avx2", 32), ("sse4.2", "sse42", 16)),
    "aarch64": (("sve", "sve", 16), ("neon", "neon", 16)),
}
"""Machine -> (LLVM feature, its name in a profile, vector bytes), widest first."""

REGISTER_TILES = ((8, 2), (12, 2), (14, 2), (6, 2), (4, 3))
"""Rows x vectors of accumulators tried for the peak; which fits depends on the register file."""

FLOP_DEPTH, FLOP_JOBS = 2048, 64
STREAM_ELEMENTS = 32 * 1024 * 1024
"""128 MiB an array: beyond any cache this toolkit has met."""


def host_target(cores: int) -> dict[str, Any]:
    """TVM's target for this CPU as a dictionary."""
    return {"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu(), "num-cores": cores}


def vector_isa(target: dict[str, Any]) -> tuple[str, int]:
    """Name and register width in bytes of the widest vector unit that a target has."""
    features = set(codegen.llvm_get_cpu_features(tvm.target.Target(target)))
    for feature, name, width in ISAS.get(platform.machine(), ()):
        if feature in features:
            return name, width
    return "scalar", 4


def peak_gflops(target: dict[str, Any], vector_bytes: int) -> float:
    """Best GFLOP/s of a register-blocked multiply-add that stays in the first-level cache."""
    best = 0.0
    for rows, vectors in REGISTER_TILES:
        lanes = vector_bytes // 4
        columns = lanes * vectors
        shapes = (
            (FLOP_JOBS, FLOP_DEPTH, rows),
            (FLOP_JOBS, FLOP_DEPTH, columns),
            (FLOP_JOBS, rows, columns),
        )
        seconds = _best_seconds(_multiply_add(shapes, lanes), target, shapes, number=10)
        best = max(best, 2 * FLOP_JOBS * FLOP_DEPTH * rows * columns / seconds / 1e9)
    return best


def bandwidth_gb_s(target: dict[str, Any]) -> float:
    """Memory bandwidth in 1e9 bytes/s of `b = 2a`, the read and the write counted once each."""
    source = te.placeholder((STREAM_ELEMENTS,), name="a")
    scaled = te.compute(source.shape, lambda i: source[i] * te.const(2.0, "float32"), name="b")
    schedule = Schedule(te.create_prim_func([source, scaled]))
    outer, inner = schedule.split(schedule.get_loops(schedule.get_sblock("b"))[0], [None, 16])
    schedule.parallel(outer)
    schedule.vectorize(inner)
    shapes = ((STREAM_ELEMENTS,), (STREAM_ELEMENTS,))
    return 2 * 4 * STREAM_ELEMENTS / _best_seconds(schedule.mod, target, shapes, number=1) / 1e9


def _multiply_add(shapes: tuple[tuple[int, int, int], ...], lanes: int) -> tvm.IRModule:
    a, b = te.placeholder(shapes[0], name="a"), te.placeholder(shapes[1], name="b")
    depth = te.reduce_axis((0, FLOP_DEPTH), name="k")
    c = te.compute(
        shapes[2], lambda j, r, n: te.sum(a[j, depth, r] * b[j, depth, n], axis=depth), name="c"
    )
    schedule = Schedule(te.create_prim_func([a, b, c]))
    block = schedule.get_sblock("c")
    registers = schedule.cache_write(block, 0, "local")
    job, row, column, k = schedule.get_loops(block)
    vector, lane = schedule.split(column, [None, lanes])
    schedule.reorder(job, k, row, vector, lane)
    schedule.parallel(job)
    schedule.reverse_compute_at(registers, job)
    schedule.unroll(row)
    schedule.unroll(vector)
    schedule.vectorize(lane)
    _, written = schedule.split(schedule.get_loops(registers)[-1], [None, lanes])
    schedule.vectorize(written)
    schedule.decompose_reduction(block, k)
    return schedule.mod


def _best_seconds(
    module: tvm.IRModule,
    target: dict[str, Any],
    shapes: tuple[tuple[int, ...], ...],
    number: int,
) -> float:
    function = tvm.compile(module, tvm.target.Target(target)).jit()
    arrays = [tvm.runtime.tensor(np.ones(shape, "float32")) for shape in shapes]
    timer = function.time_evaluator("main", tvm.cpu(), number=number, repeat=7)
    return float(min(timer(*arrays).results))


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    figures = {
        "peak_gflops": peak_gflops(wanted, vector_isa(wanted)[1]),
        "bandwidth_gb_s": bandwidth_gb_s(wanted),
    }
    sys.stdout.write(json.dumps(figures))
