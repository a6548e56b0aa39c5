"""bfloat16 in integers: torch's bits, and products of them."""

import re

import digested
import numpy as np
import pytest
import quantised
import torch
from integer_networks import AMX, AVX2, on
from torch import nn

from hetfeat.deploy.precision import need_half
from hetfeat.errors import RequestError
from hetfeat.workloads import brain_floats

pytestmark = [pytest.mark.tvm]

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 1e-40, 1.00390625, 1.01171875, 65504.0]


def values():
    rng = np.random.default_rng(0)
    many = rng.normal(size=1000) * np.exp(rng.uniform(-30, 30, 1000))
    return np.asarray([*SPECIAL, *many], np.float32)


def by_torch(array):
    return torch.from_numpy(array).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


def test_the_bits_are_those_of_torch():
    given = values()
    numbers = ~np.isnan(given)
    np.testing.assert_array_equal(brain_floats.narrowed(given)[numbers], by_torch(given)[numbers])
    (bits,) = brain_floats.narrowed(given)[~numbers]
    assert np.isnan(np.asarray([int(bits) << 16], np.uint32).view(np.float32))


@pytest.mark.parametrize("cpu", [AVX2, AMX])
def test_a_kernel_has_the_same_bits(cpu):
    import tvm
    from tvm import te

    if cpu not in digested.cpus_here():
        pytest.skip(f"runs what {cpu} has")
    given = values()
    data = te.placeholder(given.shape, "float32")
    half = brain_floats.narrow(data)
    function = te.create_prim_func([data, half, brain_floats.widen(half)])
    library = tvm.compile(function, tvm.target.Target(on(cpu))).jit()
    found, again = np.zeros(given.shape, np.uint16), np.zeros_like(given)
    tensors = [tvm.runtime.tensor(array) for array in (given, found, again)]
    library["main"](*tensors)
    found, again = (tensor.numpy() for tensor in tensors[1:])
    np.testing.assert_array_equal(found, brain_floats.narrowed(given))
    wide = (found.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(again, wide)


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


def lowered(cpu):
    from hetfeat.workloads.network import Network
    from hetfeat.workloads.relax import as_target, import_network, in_layout, into_kernels

    torch.manual_seed(0)
    module, x = Net().eval(), torch.randn(1, 16, 17, 17)
    network = Network("net", module, (x,))
    target = as_target(on(cpu))
    made = in_layout(import_network(network), target, half="bfloat16")
    with torch.no_grad():
        return into_kernels(made, target), target, x.numpy(), module(x).numpy()


def ran(compiled, parameters, x):
    import tvm
    from tvm import relax

    main = relax.VirtualMachine(compiled, tvm.cpu())["main"]
    return main(*map(tvm.runtime.tensor, [x, *parameters])).numpy()


def assert_near(found, expected):
    """Some, but not much, is lost: bfloat16 has 8 bits."""
    lost = np.abs(found - expected).max() / np.abs(expected).max()
    assert 1e-4 < lost < 0.02


def test_products_are_computed_in_half_on_any_cpu():
    import tvm

    module, target, x, expected = lowered(AVX2)
    names = [variable.name_hint for variable, _ in module.functions_items()]
    assert sum(bool(re.search(r"(conv2d|matmul).*", name)) for name in names) == 3
    assert_near(ran(tvm.compile(module, target), [], x), expected)


def test_amx_multiplies_them():
    from hetfeat.deploy.compile import compile_network
    from hetfeat.devices.profile import DeviceProfile
    from hetfeat.records import Program
    from hetfeat.schedules.design_space import TaskSpace
    from hetfeat.workloads.relax import extract_tasks

    module, target, x, expected = lowered(AMX)
    tasks = extract_tasks(module, target)
    programs = {}
    for task in tasks:
        if task.task.operator in ("conv2d", "matmul"):
            ((trace, _),) = TaskSpace(task.module, target, 64).sample(1, 0)
            assert "hetfeat_tiles_uint16" in trace
            programs[task.task.hash] = Program(task.task, trace)
    assert len(programs) == 3
    profile = DeviceProfile("there", "cpu-x86", on(AMX), 1)
    made = compile_network(module, profile, tasks, programs)
    assert re.search(r"tdpbf16ps\s.*tmm", quantised.assembly(made.executable))
    if AMX in digested.cpus_here():
        assert_near(ran(made.executable, made.parameters, x), expected)


def test_a_product_of_a_vector_stays_in_float32():
    from hetfeat.workloads.network import Network
    from hetfeat.workloads.relax import as_target, import_network, in_layout, into_kernels

    network = Network("net", nn.Linear(64, 32).eval(), (torch.randn(64),))
    target = as_target(on(AMX))
    made = into_kernels(in_layout(import_network(network), target, half="bfloat16"), target)
    assert not any("narrow" in variable.name_hint for variable, _ in made.functions_items())


@pytest.mark.parametrize("target", [on(AVX2), {"kind": "cuda", "arch": "sm_90"}])
def test_a_device_without_amx_is_refused(target):
    with pytest.raises(RequestError, match="CPU with AMX"):
        need_half("bfloat16", "there", target)
    need_half("bfloat16", "there", on(AMX))
