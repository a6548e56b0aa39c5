"""bfloat16 in integers: torch's bits."""

import digested
import numpy as np
import pytest
import torch
from integer_networks import AMX, AVX2, on

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
