"""Products in half precision on CPUs: of two factors, or of weights alone."""

import re

import digested
import numpy as np
import pytest
import quantised
import torch
from integer_networks import AMX, AVX2, SSE, on, on_arm
from torch import nn

from hetfeat.deploy.compile import compile_network
from hetfeat.deploy.precision import multiplied_in, need_half
from hetfeat.devices import host
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import RequestError
from hetfeat.records import Program
from hetfeat.workloads.network import Network

pytestmark = [pytest.mark.tvm]

BF16 = "cooperlake"
"""A CPU that multiplies bfloat16 and has no tiles."""
GPU = {"kind": "cuda", "arch": "sm_90"}


class Net(nn.Module):
    """A convolution of 17 pixels a row, one with stride 2, and a product of 9 rows."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(16, 32, 3, padding=1)
        self.second = nn.Conv2d(32, 16, 3, stride=2, padding=1)
        self.last = nn.Linear(144, 32)

    def forward(self, x):
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.last(x.permute(0, 2, 1, 3).reshape(1, 9, 144))


def lowered(cpu, half="bfloat16"):
    from hetfeat.workloads.relax import as_target, import_network, in_layout, into_kernels

    torch.manual_seed(0)
    module, x = Net().eval(), torch.randn(1, 16, 17, 17)
    network = Network("net", module, (x,))
    target = as_target(on(cpu))
    made = in_layout(import_network(network), target, half=half)
    with torch.no_grad():
        return into_kernels(made, target), target, x.numpy(), module(x).numpy()


def ran(compiled, parameters, x):
    import tvm
    from tvm import relax

    main = relax.VirtualMachine(compiled, tvm.cpu())["main"]
    return main(*map(tvm.runtime.tensor, [x, *parameters])).numpy()


def runs_here(cpu):
    if cpu != BF16:
        return cpu in digested.cpus_here()
    native = {"kind": "llvm", "mcpu": host.llvm_cpu()}
    return multiplied_in("bfloat16", native) is not None


def assert_near(found, expected, least=1e-4, most=0.02):
    """Some, but not much, is lost: bfloat16 has 8 bits."""
    lost = np.abs(found - expected).max() / np.abs(expected).max()
    assert least < lost < most


@pytest.mark.parametrize("half, least, most", [("bfloat16", 1e-4, 0.02), ("float16", 1e-5, 0.002)])
def test_products_are_computed_in_half_on_any_cpu(half, least, most):
    import tvm

    module, target, x, expected = lowered(AVX2, half)
    names = [variable.name_hint for variable, _ in module.functions_items()]
    assert sum(bool(re.search(r"(conv2d|matmul).*", name)) for name in names) == 3
    assert not any("narrow" in name or "cast" in name for name in names)
    assert_near(ran(tvm.compile(module, target), [], x), expected, least, most)


@pytest.mark.parametrize(
    "cpu, half, intrinsic, instruction",
    [
        (AMX, "bfloat16", "hetfeat_tiles_uint16", r"tdpbf16ps\s.*tmm"),
        (BF16, "bfloat16", "hetfeat_dot_16x2_bf16", r"vdpbf16ps\s.*zmm"),
        (AVX2, "bfloat16", "", r"vfmadd231ps\s.*ymm"),
        (AVX2, "float16", "", r"vcvtph2ps\s.*ymm"),
    ],
)
def test_a_cpu_multiplies_them_as_it_can(cpu, half, intrinsic, instruction):
    from hetfeat.schedules.design_space import TaskSpace
    from hetfeat.workloads.relax import extract_tasks

    module, target, x, expected = lowered(cpu, half)
    tasks = extract_tasks(module, target)
    programs = {}
    for task in tasks:
        if task.task.operator in ("conv2d", "matmul"):
            found = TaskSpace(task.module, target, 64).sample(4, 0)
            traces = [trace for trace, _ in found if intrinsic in trace]
            programs[task.task.hash] = Program(task.task, traces[0])
    assert len(programs) == 3
    profile = DeviceProfile("there", "cpu-x86", on(cpu), 1)
    made = compile_network(module, profile, tasks, programs)
    assert re.search(instruction, quantised.assembly(made.executable))
    if runs_here(cpu):
        assert_near(ran(made.executable, made.parameters, x), expected, least=1e-5)


def test_what_winograd_computes_stays_in_float32_where_pixels_are_many():
    from hetfeat.workloads.relax import arguments, extract_tasks

    module, target, *_ = lowered(AVX2)
    types = {
        (dtype, shape[-1])
        for task in extract_tasks(module, target)
        for _, dtype, shape in arguments(task.module)
        if shape[:2] == [3, 3]
    }
    assert types == {("float32", 32), ("uint16", 16)}


def test_a_product_of_a_vector_stays_in_float32():
    from hetfeat.workloads.relax import as_target, import_network, in_layout, into_kernels

    network = Network("net", nn.Linear(64, 32).eval(), (torch.randn(64),))
    target = as_target(on(AMX))
    made = into_kernels(in_layout(import_network(network), target, half="bfloat16"), target)
    assert not any("narrow" in variable.name_hint for variable, _ in made.functions_items())


@pytest.mark.parametrize(
    "precision, target, expected",
    [
        ("bfloat16", GPU, "a CPU"),
        ("float16", {"kind": "cuda", "arch": "sm_70"}, "sm_80 or later, or a CPU with F16C"),
        ("float16", on(SSE), "sm_80 or later, or a CPU with F16C"),
    ],
)
def test_a_device_that_cannot_read_half_is_refused(precision, target, expected):
    with pytest.raises(RequestError, match=expected):
        need_half(precision, "there", target)


@pytest.mark.parametrize(
    "precision, target, multiplied",
    [
        ("float32", on(AMX), None),
        ("bfloat16", on(AMX), "bfloat16"),
        ("bfloat16", on(BF16), "bfloat16"),
        ("bfloat16", on(AVX2), None),
        ("float16", on(AMX), None),
        ("float16", on_arm("cortex-a72"), None),
        ("float16", GPU, "float16"),
    ],
)
def test_peers_multiply_halves_where_the_device_does(precision, target, multiplied):
    need_half(precision, "there", target)
    assert multiplied_in(precision, target) == multiplied
