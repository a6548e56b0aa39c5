"""TVM tasks of one small kernel each: some well-behaved, some that take the process down.

The trace of a kernel left as it is has no instructions: `UNTOUCHED`.
"""

import tvm
from tvm import te, tirx

from hetfeat.records import Program, Task
from hetfeat.workloads.relax import describe, save_workload

UNTOUCHED = "[[],[]]"
OTHER_UNTOUCHED = "[ [], [] ]"
"""The same program under another key."""
BROKEN = '[[["GetSBlock",[],["no such block","main"],["b0"]]],[]]'
ELEMENTS = 16


def _kernel(value) -> tvm.IRModule:
    source = te.placeholder((ELEMENTS,), name="source")
    result = te.compute(source.shape, lambda i: value(source, i), name="result")
    return tvm.IRModule({"main": te.create_prim_func([source, result])})


def scaled(factor: float) -> tvm.IRModule:
    """Works; each factor is a task of its own."""
    return _kernel(lambda a, i: a[i] * te.const(factor, "float32"))


def weighted(rows: int) -> tvm.IRModule:
    """Adds weights to a row that stays in the cache, as fast as they come."""
    row = te.placeholder((1024,), name="row")
    weights = te.placeholder((rows, 1024), name="weights")
    result = te.compute(weights.shape, lambda i, j: row[j] + weights[i, j], name="result")
    return tvm.IRModule({"main": te.create_prim_func([row, weights, result])})


def matmul(size: int) -> tvm.IRModule:
    """A square matrix product, with a design space of its own."""
    a, b = (te.placeholder((size, size), name=name) for name in "ab")
    k = te.reduce_axis((0, size), "k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="matmul")
    return tvm.IRModule({"main": te.create_prim_func([a, b, c])})


def calling(function: str, *arguments: int) -> tvm.IRModule:
    """Calls a function of the C library."""
    return _kernel(
        lambda a, i: a[i] + tirx.call_extern("int32", function, *arguments).astype("float32")
    )


def in_parallel(module: tvm.IRModule) -> tvm.IRModule:
    """The same kernel with its loop spread over the threads."""
    schedule = tvm.s_tir.Schedule(module)
    schedule.parallel(schedule.get_loops(schedule.get_sblock("result"))[0])
    return schedule.mod


def allocating(size_bytes: int) -> tvm.IRModule:
    """Asks for working memory as compiled programs do for their intermediate buffers."""
    cpu, device, float_code, bits = (tirx.const(n, "int32") for n in (1, 0, 2, 32))
    wanted = (cpu, device, tirx.const(size_bytes, "int64"), float_code, bits)
    return _kernel(
        lambda a, i: (
            a[i] + tirx.call_extern("int64", "TVMBackendAllocWorkspace", *wanted).astype("float32")
        )
    )


def known_to(measurer, module: tvm.IRModule, trace: str = UNTOUCHED) -> Program:
    """A program of the module, whose task the measurer then knows."""
    task: Task = describe(module)
    measurer.add_task(task, save_workload(module))
    return Program(task, trace)
