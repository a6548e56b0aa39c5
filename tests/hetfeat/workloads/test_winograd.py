"""Winograd convolution: the algebra, the kernel, the rewrite, and the choice by measurement."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hetfeat.records import Task
from hetfeat.workloads.network import Network
from hetfeat.workloads.winograd import TRANSFORMS, transformed_filters
from hetfeat.workloads.winograd.variants import choose_fastest, network_s, select_alternatives

LARGEST_ERROR = {2: 1e-6, 4: 1e-5}
"""Relative to the largest output, beside float64."""


@pytest.mark.parametrize("tile", TRANSFORMS)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_the_matrices_convolve(tile, seed):
    """One tile, in float64, against sliding the filter by hand."""
    rng = np.random.default_rng(seed)
    data, filters = rng.normal(size=(tile + 2, tile + 2)), rng.normal(size=(3, 3))
    t = TRANSFORMS[tile]
    got = t.outputs @ (
        (t.filters @ filters @ t.filters.T) * (t.inputs @ data @ t.inputs.T)
    ) @ t.outputs.T  # fmt: skip
    wanted = [
        [(data[y : y + 3, x : x + 3] * filters).sum() for x in range(tile)] for y in range(tile)
    ]
    np.testing.assert_allclose(got, wanted, atol=1e-12)


def test_a_filter_is_transformed_by_hand():
    weights = np.zeros((3, 3, 1, 1), np.float32)
    weights[1, 1] = 1  # G's second column, times itself
    found = transformed_filters(weights, 2)[:, :, 0, 0]
    np.testing.assert_array_equal(found, np.outer([0, 0.5, -0.5, 0], [0, 0.5, -0.5, 0]))


@pytest.mark.tvm
@pytest.mark.parametrize("tile", TRANSFORMS)
@pytest.mark.parametrize(
    ("shape", "channels", "padding"),
    [
        ((1, 8, 8, 16), 16, (1, 1, 1, 1)),
        ((2, 7, 9, 3), 5, (1, 1, 1, 1)),
        ((1, 6, 5, 8), 8, (0, 1, 2, 1)),
        ((1, 3, 3, 4), 4, (0, 0, 0, 0)),
    ],
)
def test_the_kernel_is_a_convolution(tile, shape, channels, padding):
    import tvm
    from tvm import te

    from hetfeat.workloads.winograd.lowering import convolution

    rng = np.random.default_rng(0)
    data = rng.normal(size=shape).astype(np.float32)
    weights = rng.normal(size=(3, 3, shape[3], channels)).astype(np.float32)
    top, left, bottom, right = padding
    exact = nn.functional.conv2d(
        nn.functional.pad(
            torch.tensor(data.transpose(0, 3, 1, 2)).double(), (left, right, top, bottom)
        ),
        torch.tensor(weights.transpose(3, 2, 0, 1)).double(),
    )
    wanted = exact.numpy().transpose(0, 2, 3, 1)
    side = tile + 2
    inputs = te.placeholder(shape, name="data")
    filters = te.placeholder((side, side, shape[3], channels), name="filters")
    kernel = te.create_prim_func([inputs, filters, convolution(inputs, filters, tile, padding)])
    out = tvm.runtime.tensor(np.zeros(wanted.shape, np.float32))
    run = tvm.compile(kernel, tvm.target.Target({"kind": "llvm"}))
    run(tvm.runtime.tensor(data), tvm.runtime.tensor(transformed_filters(weights, tile)), out)
    assert np.abs(out.numpy() - wanted).max() <= LARGEST_ERROR[tile] * np.abs(wanted).max()


class Several(nn.Module):
    """Convolutions of which one alone can be computed by Winograd's algorithm."""

    def __init__(self):
        super().__init__()
        self.fits = nn.Conv2d(4, 8, 3, padding=1)
        self.strided = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.dilated = nn.Conv2d(8, 8, 3, padding=2, dilation=2)
        self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.pointwise = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        x = self.strided(self.fits(x).relu())
        return self.pointwise(self.grouped(self.dilated(x)))


@pytest.mark.tvm
@pytest.mark.parametrize("tile", TRANSFORMS)
def test_only_what_fits_is_replaced_and_the_numbers_stay(tile, device):
    import tvm
    from tvm import relax

    from hetfeat.workloads.relax import as_target, extract_tasks, import_network, lower

    torch.manual_seed(0)
    network = Network("n", Several().eval(), (torch.randn(1, 4, 9, 9),))
    target = as_target(device.target)
    asked = []

    def choose(convolution):
        asked.append(convolution)
        return tile

    lowered = lower(import_network(network), target, choose)
    assert asked == [((1, 9, 9, 4), (3, 3, 4, 8), (1, 9, 9, 8))]
    found = [t.task for t in extract_tasks(lowered, target) if t.task.operator == "winograd"]
    assert [task.shapes[1] for task in found] == [(tile + 2, tile + 2, 4, 8)]
    assert found[0].shapes[-1] == (1, 9, 9, 8)  # with its bias and relu in the same kernel
    machine = relax.VirtualMachine(tvm.compile(lowered, target), tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(network.inputs[0].numpy())).numpy()
    with torch.no_grad():
        wanted = network.module(*network.inputs).numpy()
    assert np.abs(got - wanted).max() <= LARGEST_ERROR[tile] * np.abs(wanted).max()


@pytest.mark.tvm
def test_the_variants_leave_what_they_share_as_it_was(device):
    import tvm_ffi

    from hetfeat.workloads.convolution_variants import extract_variant_tasks, lower_fastest
    from hetfeat.workloads.relax import as_target, import_network, in_layout, into_kernels, lower

    imported = import_network(Network("n", Several().eval(), (torch.randn(1, 4, 9, 9),)))
    target = as_target(device.target)
    prepared = in_layout(imported, target)
    tasks = extract_variant_tasks(prepared, target, TRANSFORMS)
    slow_s = {t.task.hash: 1.0 for t in tasks}
    small_s = slow_s | {t.task.hash: 0.1 for t in tasks if t.task.shapes[1] == (4, 4, 4, 8)}
    small = lower_fastest(prepared, target, tasks, small_s)
    assert tvm_ffi.structural_equal(small, lower(imported, target, lambda _: 2))
    assert tvm_ffi.structural_equal(into_kernels(prepared, target), lower(imported, target))
    assert not tvm_ffi.structural_equal(small, into_kernels(prepared, target))


def task(name: str, operator: str, filters: tuple[int, ...]) -> Task:
    return Task(name, operator, ((1, 8, 8, 4), filters, (1, 8, 8, 6)), "float32", 1.0)


DIRECT = [task("direct", "conv2d", (3, 3, 4, 6)), task("with relu", "conv2d", (3, 3, 4, 6))]
SMALL = [task("2", "winograd", (4, 4, 4, 6)), task("2 with relu", "winograd", (4, 4, 4, 6))]
LARGE = [task("4", "winograd", (6, 6, 4, 6)), task("4 with relu", "winograd", (6, 6, 4, 6))]
OTHER = task("other", "conv2d", (1, 1, 4, 6))
CONVOLUTION = ((1, 8, 8, 4), (3, 3, 4, 6), (1, 8, 8, 6))


def test_variants_of_one_convolution_compete():
    found = select_alternatives([*DIRECT, *SMALL, *LARGE, OTHER])
    assert set(found) == {t.hash for t in (*DIRECT, *SMALL, *LARGE)}
    assert {what for what, _ in found.values()} == {CONVOLUTION}
    assert [found[t.hash][1] for t in (DIRECT[0], SMALL[0], LARGE[0])] == [None, 2, 4]
    assert select_alternatives([*DIRECT, OTHER]) == {}


@pytest.mark.parametrize(
    ("latencies", "chosen"),
    [
        ({"direct": 3.0, "with relu": 1.0, "2": 2.0, "2 with relu": 1.0}, 2),
        # The second occurs twice in the network: 3 + 2 * 1 against 2 + 2 * 2.
        ({"direct": 3.0, "with relu": 1.0, "2": 2.0, "2 with relu": 2.0}, None),
        ({"direct": 3.0, "with relu": 1.0, "4": 0.5}, None),
        ({"4": 0.5, "4 with relu": 0.5}, 4),
        ({}, None),
        ({"direct": 1.0, "with relu": 1.0, "4": 1.0, "4 with relu": 1.0}, None),
    ],
)
def test_the_variant_that_is_fastest_over_the_network_is_chosen(latencies, chosen):
    weights = {t: 1 + (" with" in t.hash or "with" in t.hash) for t in (*DIRECT, *SMALL, *LARGE)}
    found = choose_fastest({**weights, OTHER: 1}, latencies, select_alternatives([*weights, OTHER]))
    assert found == ({} if chosen is None else {CONVOLUTION: chosen})


def test_a_strided_convolution_of_the_same_input_and_weights_is_another():
    shapes = (*CONVOLUTION[:2], (1, 4, 4, 6))
    strided = Task("strided", "conv2d", shapes, "float32", 1.0)
    tasks = [*DIRECT, *SMALL, strided]
    assert strided.hash not in select_alternatives(tasks)
    latencies = {"direct": 3.0, "with relu": 1.0, "2": 3.0, "2 with relu": 1.5, "strided": 1.0}
    assert choose_fastest(dict.fromkeys(tasks, 1), latencies, select_alternatives(tasks)) == {}


def test_a_network_s_kernels_add_up_each_convolution_by_its_fastest_variant():
    weights = {DIRECT[0]: 1, DIRECT[1]: 2, SMALL[0]: 1, SMALL[1]: 2, LARGE[0]: 1, OTHER: 3}
    latencies = {"direct": 3.0, "with relu": 1.0, "2": 2.0, "2 with relu": 0.5, "other": 0.1}
    alternatives = select_alternatives(weights)
    assert network_s(weights, latencies, alternatives) == pytest.approx((2.0 + 2 * 0.5) + 3 * 0.1)
    assert network_s(weights, {"other": 0.1, "2": 1.0}, alternatives) == pytest.approx(0.3)


class Dilated(torch.nn.Module):
    """Two convolutions of the same shapes, of which one has holes."""

    def __init__(self):
        super().__init__()
        self.plain = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.dilated = torch.nn.Conv2d(8, 8, 3, padding=2, dilation=2)

    def forward(self, x):
        return self.dilated(self.plain(x))


@pytest.mark.tvm
def test_a_dilated_convolution_has_no_rivals(device):
    from hetfeat.workloads.convolution_variants import extract_variant_tasks, find_alternatives
    from hetfeat.workloads.relax import as_target, import_network, in_layout

    network = Network("n", Dilated().eval(), (torch.randn(1, 8, 9, 9),))
    target = as_target(device.target)
    tasks = extract_variant_tasks(in_layout(import_network(network), target), target, TRANSFORMS)
    direct = [task for task in tasks if task.task.operator == "conv2d"]
    assert len({task.task.shapes[:2] for task in direct}) == 1
    (dilated,) = [task for task in direct if task.fixed]
    alternatives = find_alternatives(tasks)
    assert dilated.task.hash not in alternatives
    assert {tile for _, tile in alternatives.values()} == {None, 2, 4}
    assert len(alternatives) == 3


@pytest.mark.tvm
def test_a_network_without_a_choice_is_lowered_once(device, monkeypatch):
    from hetfeat.workloads import relax
    from hetfeat.workloads.convolution_variants import extract_variant_tasks

    lowered = []
    into_kernels = relax.into_kernels
    monkeypatch.setattr(
        relax, "into_kernels", lambda *given: lowered.append(None) or into_kernels(*given)
    )
    target = relax.as_target(device.target)
    for module, inputs, times in (
        (torch.nn.Linear(8, 4), torch.randn(2, 8), 1),
        (torch.nn.Conv2d(4, 4, 1), torch.randn(1, 4, 6, 6), 1),
        (torch.nn.Conv2d(4, 4, 3), torch.randn(1, 4, 6, 6), 1 + len(TRANSFORMS)),
    ):
        lowered.clear()
        imported = relax.import_network(Network("n", module.eval(), (inputs,)))
        tasks = extract_variant_tasks(relax.in_layout(imported, target), target, TRANSFORMS)
        assert len(lowered) == times
        assert all(task.fixed for task in tasks) == (times == 1)
