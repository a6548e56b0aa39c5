"""Programs of float16 for tensor cores: their rules, their room, and their machine code."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
import torch
import tvm
from halves import Attention, Residual, multiplications_on_tensor_cores
from tvm import te
from tvm.s_tir.schedule import Schedule, Trace
from tvm.script import from_source

from hetfeat.devices.presets import preset
from hetfeat.measure import kernels as cuda
from hetfeat.packs.build import PackRequest, build_pack
from hetfeat.packs.tasks import PackTasks
from hetfeat.schedules import tensor_cores
from hetfeat.schedules import trace as traces
from hetfeat.schedules.design_space import TaskSpace, replay
from hetfeat.schedules.threads import keeps_to_threads
from hetfeat.workloads.network import Network
from hetfeat.workloads.relax import (
    arguments,
    as_target,
    describe,
    extract_tasks,
    import_network,
    in_layout,
    into_kernels,
    save_workload,
)

pytestmark = [pytest.mark.slow, pytest.mark.tvm]

H100 = preset("nvidia-h100")
PRODUCTS = ("matmul", "conv2d")


def product(rows=64, columns=96, depth=64, dtype="float16"):
    """relu(A B + bias) of float16 with sums of float32."""
    a, b = te.placeholder((rows, depth), dtype, "a"), te.placeholder((depth, columns), dtype, "b")
    bias = te.placeholder((columns,), "float32", "bias")
    k = te.reduce_axis((0, depth), "k")

    def of(i, j):
        return te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k)

    summed = te.compute((rows, columns), of, "product")
    made = te.compute(
        (rows, columns), lambda i, j: te.max(summed[i, j] + bias[j], 0.0).astype(dtype), "made"
    )
    return tvm.IRModule({"main": te.create_prim_func([a, b, bias, made])})


def space_of(module, profile=H100):
    return TaskSpace(module, as_target(profile.target), 64)


def test_products_of_float16_alone_have_programs_of_tensor_cores():
    halves, floats = space_of(product()), space_of(product(dtype="float32"))
    older = dataclasses.replace(H100, target=H100.target | {"arch": "sm_70"})
    assert all("wmma_sync" in str(sketch) for sketch in halves._sketches)
    assert ["software_pipeline" in str(sketch) for sketch in halves._sketches] == [False, True]
    for space in (floats, space_of(product(), older)):
        assert not any("wmma" in str(sketch) for sketch in space._sketches)


def test_nearly_every_draw_is_a_program(rows=128):
    """Of 128 x 768 x 3072, the largest of BERT-base: without a filter two in five are."""
    space, finished = space_of(product(rows, 3072, 768)), []
    finish = space._finish
    space._finish = lambda schedule: finished.append(finish(schedule)) or finished[-1]
    found = list(space.sample(12, 0))
    assert len(found) == 12 and len(finished) <= 15
    assert all(np.isfinite(features).all() for _, features in found)
    children = list(space.vary([found[0][0]], 6, 1))
    assert len(children) == 6


def test_room_is_told_from_factors():
    text = next(iter(space_of(product(128, 512, 512)).sample(1, 0)))[0]
    trace = traces.without_postproc(json.loads(text))
    places = [i for i, _ in trace[1] if trace[0][i][0] == traces.TILE]

    def with_tiles(*tiles):
        chosen = dict(trace[1]) | dict(zip(places, tiles, strict=True))
        return [trace[0], [list(item) for item in chosen.items()]]

    room = tensor_cores.TensorCores(232448)
    small = with_tiles([4, 1, 2, 1, 1], [8, 1, 2, 1, 2], [8, 2, 2])
    assert room.holds(small) and keeps_to_threads(small)
    assert not tensor_cores.TensorCores(8192).holds(small)
    deep = with_tiles([1, 1, 8, 1, 1], [8, 1, 1, 1, 4], [1, 8, 4])
    spilling = with_tiles([1, 1, 1, 2, 4], [4, 1, 1, 2, 4], [8, 2, 2])
    assert not room.holds(deep) and not room.holds(spilling)
    many = with_tiles([1, 1, 8, 1, 1], [1, 1, 32, 1, 1], [8, 2, 2])
    assert not keeps_to_threads(many)  # 256 warps


@pytest.mark.parametrize(("dtype", "expected"), [("float16", True), ("float32", False)])
def test_machine_code_has_instructions_of_tensor_cores(tmp_path, monkeypatch, dtype, expected):
    if cuda._nvrtc() is None and shutil.which("nvcc") is None:
        pytest.skip("neither NVRTC nor nvcc")
    module = product(dtype=dtype)
    task = describe(module)
    tasks = PackTasks({task.hash: task}, {task.hash: save_workload(module)}, {"n": {task.hash: 1}})
    monkeypatch.setattr("hetfeat.packs.build.tasks_of_networks", lambda *given: tasks)
    built = build_pack(H100, PackRequest(("n",), 4), tmp_path / "pack", builders=1)
    assert (built.programs, built.failed) == (4, 0)
    shutil.unpack_archive(tmp_path / "pack", tmp_path, "xztar")
    cubins = [path.read_bytes() for path in tmp_path.rglob("*.cubin")]
    assert len(cubins) == 4
    assert [multiplications_on_tensor_cores(cubin) > 0 for cubin in cubins] == [expected] * 4


def in_turns(module):
    """A scheduled module for the CPU, which takes blocks and threads one after the other."""
    text = re.sub(r"^ *T\.sblock_attr\(.*\n", "", module.script(), flags=re.MULTILINE)
    text = re.sub(r', annotations=\{.*?\}|, thread="[\w.]+"|, scope="[\w.]+"', "", text)
    return from_source(text.replace("T.thread_binding(", "T.serial("))


@pytest.mark.parametrize("kind", [Attention, Residual])
def test_what_is_scheduled_computes_what_it_did(kind):
    """On the CPU, fragments as loops; a convolution of 144 x 27 is padded."""
    torch.manual_seed(0)
    shape = (1, 3, 12, 12) if kind is Residual else (1, 32, 32)
    network = Network("n", kind().eval(), (torch.randn(shape),))
    target = as_target(H100.target)
    lowered = into_kernels(in_layout(import_network(network), target, half="float16"), target)
    tasks = [of for of in extract_tasks(lowered, target) if of.task.operator in PRODUCTS]
    assert len(tasks) >= 3
    rng = np.random.default_rng(0)
    for task in tasks:
        (text, _), *_ = space_of(task.module).sample(1, 0)
        instructions, decisions = json.loads(text)
        end = [kind for kind, *_ in instructions].index("Tensorize")
        schedule = Schedule(task.module, debug_mask="none")
        before = [instructions[:end], [one for one in decisions if one[0] < end]]
        Trace.apply_json_to_schedule(before, schedule)
        given = [rng.random(shape).astype(dtype) for _, dtype, shape in arguments(task.module)]
        made = []
        for module in (task.module, in_turns(schedule.mod)):
            arrays = [tvm.runtime.tensor(value) for value in given]
            tvm.compile(module, as_target({"kind": "llvm"}))["main"](*arrays)
            made.append(arrays[-1].numpy())
        np.testing.assert_allclose(*made, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("rows", [64, 49])
def test_programs_compute_the_product(rows):
    """On a GPU: 49 rows are padded to 64."""
    if not tvm.cuda().exist:
        pytest.skip("no GPU")
    from hetfeat.devices.cuda import gpu_profile

    profile, module = gpu_profile(), product(rows)
    if profile.target["arch"] < "sm_80":
        pytest.skip("a GPU without such tensor cores")
    target, rng = as_target(profile.target), np.random.default_rng(0)
    a, b = (rng.random(shape).astype("float16") for shape in ((rows, 64), (64, 96)))
    bias = rng.random(96).astype("float32") - 8
    expected = np.maximum(a.astype("float32") @ b.astype("float32") + bias, 0)
    for trace, _ in space_of(module, profile).sample(6, 0):
        built = tvm.compile(replay(module, trace).mod, target)
        arrays = [
            tvm.runtime.tensor(x, tvm.cuda()) for x in (a, b, bias, expected.astype("float16"))
        ]
        arrays[3].copyfrom(np.zeros_like(expected, "float16"))
        built["main"](*arrays)
        np.testing.assert_allclose(arrays[3].numpy(), expected, rtol=2e-3, atol=2e-3)
