"""Quantising and dequantising with fewer instructions: the same bits."""

import re

import digested
import numpy as np
import pytest
import quantised
from hypothesis import given, settings
from hypothesis import strategies as st
from integer_networks import AMX, AVX2, SSE, VNNI, compiled, lowered

pytestmark = [pytest.mark.tvm]


def residual(zero=100):
    """Two products that are added, and a third that is added to the sum."""
    from tvm.relax.frontend.onnx import from_onnx

    net = quantised.Qdq((1, 16, 8, 8), seed=6)
    value = net.qdq("x", "uint8", scale=0.03, zero=120)
    terms = []
    for size, scale in ((1, 1.3), (3, 2.1)):
        weights, _ = net.filters((16, 16, size, size))
        term = net.node("Conv", value, weights, pads=[size // 2] * 4)
        terms.append(net.qdq(term, "uint8", scale=scale, zero=zero))
    value = net.qdq(net.node("Relu", net.node("Add", *terms)), "uint8", scale=1.17, zero=0)
    weights, _ = net.filters((16, 16, 1, 1))
    term = net.qdq(net.node("Conv", value, weights), "uint8", scale=10.3, zero=zero)
    value = net.qdq(net.node("Relu", net.node("Add", term, value)), "uint8", scale=3.17, zero=0)
    return from_onnx(net.model(value))


@pytest.mark.parametrize("zero", [0, 100, 131])
@pytest.mark.parametrize("cpu", [SSE, AVX2, VNNI, AMX])
def test_a_residual_network_has_the_bits_of_numpy(cpu, zero):
    import tvm
    from tvm import relax

    from hetfeat.workloads.integer_reference import run_integers

    if cpu not in digested.cpus_here():
        pytest.skip(f"runs what {cpu} has")
    module = residual(zero)
    x = np.random.default_rng(0).normal(size=(1, 16, 8, 8)).astype(np.float32) * 3
    main = relax.VirtualMachine(compiled(module, cpu), tvm.cpu())["main"]
    (expected,) = run_integers(module, [x])
    np.testing.assert_array_equal(main(tvm.runtime.tensor(x)).numpy(), expected)
    assert np.ptp(expected) > 0


def test_kernels_hand_8_bits_on():
    """Of two products that are added, one kernel stores what the other reads."""
    import tvm

    from hetfeat.workloads.relax import arguments

    module, _ = lowered(residual(), VNNI)
    types = []
    for variable, function in module.functions_items():
        if variable.name_hint != "main":
            *_, (_, dtype, _) = arguments(tvm.IRModule({"main": function}))
            types += [dtype] if "conv2d" in variable.name_hint else []
    assert sorted(types) == ["float32", "uint8", "uint8"]  # the last is the network's output


@pytest.mark.parametrize(("cpu", "quotients"), [(SSE, 0), (AVX2, 2), (VNNI, 2)])
def test_a_cpu_that_has_fma_divides_the_input_alone(cpu, quotients):
    module, _ = lowered(residual(), cpu)
    names = [variable.name_hint for variable, _ in module.functions_items()]
    assert sum("divided" in name for name in names) == quotients
    assert sum(bool(re.search("divide(?!d)", name)) for name in names) == 3 - quotients
    assembly = quantised.assembly(compiled(residual(), cpu))
    assert not re.search(r"call.*(fmaf|nearbyint|rint)", assembly)


@pytest.mark.parametrize("cpu", [SSE, AVX2, VNNI])
def test_an_infinite_input_is_the_largest_or_the_least(cpu):
    import tvm
    from tvm import relax

    from hetfeat.workloads.integer_reference import run_integers

    if cpu not in digested.cpus_here():
        pytest.skip(f"runs what {cpu} has")
    module = residual()
    x = np.zeros((1, 16, 8, 8), np.float32)
    x[0, :3, 0, 0] = np.inf, -np.inf, 3e38
    main = relax.VirtualMachine(compiled(module, cpu), tvm.cpu())["main"]
    (expected,) = run_integers(module, [x])
    np.testing.assert_array_equal(main(tvm.runtime.tensor(x)).numpy(), expected)


@settings(max_examples=200, deadline=None)
@given(
    st.floats(2**-20, 2**10, width=32),
    st.lists(st.floats(2**-20, 2**20, width=32), min_size=1, max_size=50),
)
def test_two_products_are_the_quotient(number, values):
    from fractions import Fraction

    from hetfeat.workloads.passes import quick_steps

    if (parts := quick_steps.reciprocal(np.float32(number))) is None:
        return
    high, low = (Fraction(float(part)) for part in parts)
    near = [float(x) for x in quick_steps._near_middles(Fraction(number))]
    for value in [*values, *near]:
        x = Fraction(float(np.float32(value)))
        found = quick_steps._nearest(x * high + quick_steps._nearest(x * low))
        assert float(found) == float(np.float32(value) / np.float32(number))


def test_a_number_with_a_wrong_quotient_is_found():
    from hetfeat.workloads.passes.quick_steps import reciprocal

    assert reciprocal(np.float32(0.00083600305)) is None


@pytest.mark.slow
@pytest.mark.parametrize("number", [0.08667631, 1.136017e-05, 7.0, 3.0, 0.1, 0.5, 0.03, 3.8733327])
def test_all_fractions_are_divided_rightly(number):
    from hetfeat.workloads.passes.quick_steps import reciprocal

    number = np.float32(number)
    high, low = reciprocal(number)
    x = np.arange(2**23, 2**24, dtype=np.float32)
    wide = x.astype(np.longdouble) * np.longdouble(high) + (x * low).astype(np.longdouble)
    np.testing.assert_array_equal(wide.astype(np.float32), x / number)
