"""Our own sketches: the same numbers as the kernel that they schedule, on CPUs, for products."""

import json
import math
import re
from functools import partial
from types import SimpleNamespace

import kernels
import numpy as np
import pytest
import stores
import torch
from torch import nn

from hetfeat.records import Program
from hetfeat.schedules import blocked, concatenated, row_wise, transposed, winograd
from hetfeat.schedules.registers import VectorUnit, sums_of
from hetfeat.schedules.trace import is_custom_sketch, without_postproc
from hetfeat.workloads.winograd import TRANSFORMS, transformed_filters

pytestmark = pytest.mark.tvm

AVX2, AVX512, FULL_RATE = VectorUnit(8, 16), VectorUnit(16), VectorUnit(16, full_rate=True)
NAMED = {"avx2": AVX2, "avx512": AVX512, "full-rate": FULL_RATE}
UNITS = pytest.mark.parametrize("unit", NAMED.values(), ids=NAMED)
HASWELL, ZEN4 = ({"kind": "llvm", "mcpu": cpu, "num-cores": 2} for cpu in ("haswell", "znver4"))
LARGEST_ERROR = 1e-5
"""Relative to the largest output, beside float64; what F(4,3) has."""


def both(sketches):
    return pytest.mark.parametrize("sketch", sketches, ids=lambda sketch: sketch.__name__)


def exact(data, weights, pads=(1, 1, 1, 1), stride=1, groups=1):
    """A convolution in float64: NHWC and HWIO; top, left, bottom, right."""
    top, left, bottom, right = pads
    inner = torch.tensor(data.transpose(0, 3, 1, 2)).double()
    filters = torch.tensor(weights.transpose(3, 2, 0, 1)).double()
    inner = nn.functional.pad(inner, (left, right, top, bottom))
    return nn.functional.conv2d(inner, filters, stride=stride, groups=groups).numpy()


def convolution(data, weights, stride=1, groups=1, epilogue=True):
    """Its kernel: a 3x3 or 1x1 convolution, padded to keep its size, and a bias and ReLU."""
    from tvm import te, topi

    pad = weights[0] // 2
    source = te.placeholder(data, name="data")
    filters = te.placeholder(weights, name="weights")
    if groups > 1:
        found = topi.nn.group_conv2d_nhwc(source, filters, stride, pad, 1, groups)
    else:
        found = topi.nn.conv2d_nhwc(source, filters, stride, pad, 1)
    if not epilogue:
        return [source, filters, found]
    bias = te.placeholder((1, 1, 1, weights[3]), name="bias")
    return [source, filters, bias, topi.nn.relu(topi.add(found, bias))]


def by_winograd(data, channels, tile, pads=(1, 1, 1, 1)):
    """The kernel of a 3x3 convolution by Winograd's algorithm, and a ReLU."""
    from tvm import te, topi

    from hetfeat.workloads.winograd import lowering

    source = te.placeholder(data, name="data")
    filters = te.placeholder((tile + 2, tile + 2, data[3], channels), name="filters")
    found = lowering.convolution(source, filters, tile, pads)
    return [source, filters, topi.nn.relu(found)]


def drawn(tensors, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=[int(n) for n in t.shape]).astype(np.float32) for t in tensors[:-1]]


def scheduled(tensors, sketch, unit, seed=1):
    from tvm import te
    from tvm.s_tir import Schedule

    schedule = Schedule(te.create_prim_func(tensors), seed=seed, debug_mask="all")
    sketch(schedule, unit)
    return schedule


def run(schedule, inputs, shape):
    import tvm

    out = tvm.runtime.tensor(np.full(shape, np.nan, np.float32))
    built = tvm.compile(schedule.mod, tvm.target.Target({"kind": "llvm"}))
    built(*map(tvm.runtime.tensor, inputs), out)
    return out.numpy()


def assert_close(got, wanted):
    assert np.abs(got - wanted).max() <= LARGEST_ERROR * np.abs(wanted).max()


def parallel_loops(schedule) -> int:
    return schedule.mod.script().count("T.parallel(")


@both(blocked.SKETCHES)
@UNITS
@pytest.mark.parametrize(
    ("data", "weights", "stride", "epilogue"),
    [
        ((1, 8, 8, 16), (3, 3, 16, 32), 1, True),
        ((2, 7, 9, 3), (3, 3, 3, 5), 2, True),  # nothing that fills a vector
        ((1, 14, 14, 24), (1, 1, 24, 40), 1, False),
        ((1, 9, 9, 1), (3, 3, 1, 48), 2, True),
        ((2, 17, 17, 12), (3, 3, 12, 16), 1, True),  # no tile divides the rows
        ((1, 3, 19, 12), (1, 1, 12, 24), 1, False),
        ((2, 7, 7, 24), (1, 1, 24, 48), 1, True),  # 98 pixels, of two images
        ((1, 14, 13, 16), (1, 1, 16, 32), 2, True),  # every other one of 14 rows of 13
    ],
)
def test_convolutions(sketch, unit, data, weights, stride, epilogue):
    tensors = convolution(data, weights, stride, epilogue=epilogue)
    inputs = drawn(tensors)
    wanted = exact(*inputs[:2], (weights[0] // 2,) * 4, stride).transpose(0, 2, 3, 1)
    if epilogue:
        wanted = np.maximum(wanted + inputs[2], 0)
    assert_close(run(scheduled(tensors, sketch, unit), inputs, wanted.shape), wanted)


@pytest.mark.parametrize(
    ("data", "weights", "stride", "flat"),
    [
        ((1, 7, 7, 16), (1, 1, 16, 32), 1, True),
        ((1, 14, 14, 16), (1, 1, 16, 32), 2, True),
        ((1, 4, 4, 16), (1, 1, 16, 32), 1, False),  # no more pixels than a block of registers
        ((1, 7, 7, 16), (3, 3, 16, 32), 1, False),
    ],
)
def test_pixels_are_one_loop_where_each_output_is_of_one(data, weights, stride, flat):
    tensors = convolution(data, weights, stride)
    for sketch in blocked.SKETCHES:
        few, many = (scheduled(tensors, sketch, unit).mod.script() for unit in (AVX2, AVX512))
        assert ("pad_temp" in few) is not flat
        assert "pad_temp" in many


def test_steps_of_a_sum_whose_rows_are_tested_for_are_long():
    for seed in range(8):
        tensors = convolution((1, 7, 7, 96), (1, 1, 96, 32))
        found = scheduled(tensors, blocked.by_channels, AVX2, seed + 1).mod.script()
        (step,) = re.findall(r"T.axis.reduce\(96, \w+ \* (\d+) \+", found)
        assert int(step) in blocked.LONG_STEPS


def steps_unrolled(script, depth):
    """Extents of the unrolled loops over a sum's depth."""
    loops = {}  # by their indentation: names come again
    for line in script.splitlines():
        indent = len(line) - len(line.lstrip())
        if loop := re.match(r" *for (\w+) in T\.(\w+)\((\d+)\)", line):
            loops = {at: of for at, of in loops.items() if at < indent} | {indent: loop.groups()}
        elif found := re.search(rf"T.axis.reduce\({depth}, (.*)\)", line):
            used = re.findall(r"\w+", found[1])
            around = [of for at, of in loops.items() if at < indent]
            return [int(n) for name, kind, n in around if name in used and kind == "unroll"]
    raise AssertionError("no such sum")


@pytest.mark.parametrize(("rows", "steps"), [(16, [4]), (17, [])])
def test_no_steps_are_unrolled_where_rows_are_tested_for(rows, steps):
    tensors = convolution((1, 9, rows, 40), (3, 3, 40, 32))
    for sketch in blocked.SKETCHES:
        assert steps_unrolled(scheduled(tensors, sketch, FULL_RATE).mod.script(), 40) == steps


@pytest.mark.parametrize(("depth", "steps"), [(40, [4]), (9, [3]), (10, [2]), (7, [])])
def test_at_the_full_rate_some_steps_of_a_sum_are_unrolled(depth, steps):
    """Those of which they are counted would take the ports that multiply."""
    for kernel, sketches in (
        (convolution((1, 14, 14, depth), (1, 1, depth, 32)), blocked.SKETCHES),
        (by_winograd((1, 8, 8, depth), 32, 2), winograd.SKETCHES),
    ):
        for sketch in sketches:
            assert steps_unrolled(scheduled(kernel, sketch, FULL_RATE).mod.script(), depth) == steps
            assert steps_unrolled(scheduled(kernel, sketch, AVX512).mod.script(), depth) == []


@both(blocked.SKETCHES)
@UNITS
@pytest.mark.parametrize("shape", [(6, 20, 48), (1, 32, 10), (3, 4, 8, 16), (17, 20, 24)])
def test_matrix_products(sketch, unit, shape):
    from tvm import te

    *batch, rows, depth, columns = shape
    a = te.placeholder((*batch, rows, depth), name="a")
    b = te.placeholder((*batch, depth, columns), name="b")
    k = te.reduce_axis((0, depth), name="k")
    product = te.compute(
        (*batch, rows, columns),
        lambda *at: te.sum(a[(*at[:-1], k)] * b[(*at[:-2], k, at[-1])], axis=k),
        name="product",
    )
    tensors = [a, b, product]
    inputs = drawn(tensors)
    wanted = np.matmul(*(x.astype(float) for x in inputs))
    assert_close(run(scheduled(tensors, sketch, unit), inputs, wanted.shape), wanted)


def padded_product(data, columns, tall, rows):
    """A kernel of `pad_rows`: a product with a few rows that are not stored, and a bias."""
    from tvm import te

    from hetfeat.workloads.passes.pad_rows import product

    source = te.placeholder(data, name="data")
    weights = te.placeholder((data[-1], columns), name="weights")
    bias = te.placeholder((columns,), name="bias")
    stored = product(source, weights, tall, rows)
    added = te.compute(stored.shape, lambda *at: stored(*at) + bias[at[-1]], name="added")
    return [source, weights, bias, added]


@both(blocked.SKETCHES)
@UNITS
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("data", "tall", "rows"), [((23, 20), 0, 24), ((3, 23, 10), 1, 24), ((23, 2, 10), 0, 24)]
)
def test_rows_that_are_not_stored(sketch, unit, seed, data, tall, rows):
    tensors = padded_product(data, 48, tall, rows)
    inputs = drawn(tensors)
    wanted = inputs[0].astype(float) @ inputs[1] + inputs[2]
    found = scheduled(tensors, sketch, unit, seed)
    assert math.prod(decisions(found)[tall]) == rows
    assert_close(run(found, inputs, wanted.shape), wanted)


def decisions(schedule):
    """Factors of each loop that a schedule tiles, in the order of its trace."""
    from hetfeat.schedules import trace as traces

    return [value for _, value in json.loads(traces.dump(schedule.trace.as_json()))[1]]


@pytest.mark.parametrize(
    ("loops", "axes", "kept"),
    [
        ((197, 64), (198, 64), False),
        ((197, 64), (197, 64), True),
        ((197, 64), (64, 198), True),  # transposed
        ((100, 64), (198, 64), True),  # a slice, not padding
        ((1, 197, 64), (198, 64), True),
    ],
)
def test_only_padded_rows_are_tiled_by_what_is_computed(loops, axes, kept):
    from tvm import te
    from tvm.s_tir import Schedule

    copies = []
    for name, extents in (("computed", axes), ("stored", loops)):
        source = te.placeholder(extents, name=f"of_{name}")
        copies += [source, te.compute(extents, source, name=name)]
    schedule = Schedule(te.create_prim_func(copies))
    computed, stored = map(schedule.get_sblock, ("computed", "stored"))
    of = list(schedule.get_loops(stored))
    found = blocked.computed_loops(schedule, computed, of)
    assert [blocked.extent(schedule, loop) for loop in found] == list(loops if kept else axes)


@pytest.mark.parametrize(
    ("data", "weights", "groups", "found"),
    [
        ((1, 8, 8, 16), (3, 3, 16, 32), 1, True),
        ((1, 1, 8, 16), (1, 1, 16, 32), 1, True),
        ((1, 1, 1, 16), (1, 1, 16, 32), 1, False),  # each weight is read once
        ((1, 8, 8, 16), (3, 3, 16, 1), 1, False),
        ((1, 9, 9, 48), (3, 3, 1, 48), 48, False),
        ((1, 6, 6, 8), (3, 3, 2, 16), 4, False),
        ((1, 8, 8, 16), (3, 3, 16, 40), 1, False),  # two vectors of 16 and a half
        ((1, 17, 17, 16), (1, 1, 16, 32), 1, True),  # the last block of rows has fewer
        ((1, 16, 34, 16), (1, 1, 16, 32), 1, True),
    ],
)
def test_products_that_fill_registers(data, weights, groups, found):
    from tvm import te
    from tvm.s_tir import Schedule

    kernel = te.create_prim_func(convolution(data, weights, groups=groups))
    assert blocked.fills_registers(Schedule(kernel), 16) is found


@both(blocked.DEPTHWISE)
@UNITS
@pytest.mark.parametrize(
    ("data", "side", "stride", "epilogue"),
    [
        ((1, 8, 8, 32), 3, 1, True),
        ((2, 7, 9, 40), 5, 2, True),  # five halves of a vector of 16
        ((1, 17, 17, 8), 3, 1, False),  # no tile divides the rows
        ((1, 1, 12, 16), 3, 1, True),
    ],
)
def test_depthwise_convolutions(sketch, unit, data, side, stride, epilogue):
    channels = data[-1]
    tensors = convolution(data, (side, side, 1, channels), stride, channels, epilogue)
    inputs = drawn(tensors)
    wanted = exact(*inputs[:2], (side // 2,) * 4, stride, channels).transpose(0, 2, 3, 1)
    if epilogue:
        wanted = np.maximum(wanted + inputs[2], 0)
    found = scheduled(tensors, sketch, unit)
    assert parallel_loops(found) == 1
    assert_close(run(found, inputs, wanted.shape), wanted)


@pytest.mark.parametrize(
    ("data", "weights", "groups", "found"),
    [
        ((1, 9, 9, 48), (3, 3, 1, 48), 48, True),
        ((1, 9, 9, 40), (5, 5, 1, 40), 40, True),
        ((1, 9, 9, 44), (3, 3, 1, 44), 44, False),  # no whole vectors
        ((1, 9, 9, 48), (1, 1, 1, 48), 48, False),  # no window
        ((1, 6, 6, 16), (3, 3, 2, 16), 8, False),  # several channels a group
        ((1, 8, 8, 16), (3, 3, 16, 32), 1, False),
        ((1, 8, 8, 1), (3, 3, 1, 32), 1, False),  # one channel, which all outputs read
    ],
)
def test_kernels_that_are_depthwise(data, weights, groups, found):
    from tvm import te
    from tvm.s_tir import Schedule

    kernel = te.create_prim_func(convolution(data, weights, groups=groups))
    assert blocked.is_depthwise(Schedule(kernel), 8) is found


def transposition(tokens, heads, depth, padded=0):
    """Its kernel: columns of a matrix as heads, turned, scaled for each token, zeros after them."""
    from tvm import te, topi

    data = te.placeholder((tokens, 3 * heads * depth), name="data")
    scale = te.placeholder((tokens,), name="scale")
    width = heads * depth
    columns = topi.strided_slice(data, [0, width], [tokens, 2 * width], [1, 1])
    turned = topi.transpose(topi.reshape(columns, (tokens, heads, depth)), (1, 2, 0))
    found = topi.multiply(turned, scale)
    if padded:
        found = topi.nn.pad(found, [0, 0, 0], [0, 0, padded])
    return [data, scale, found]


@both(transposed.SKETCHES)
@UNITS
@pytest.mark.parametrize(("tokens", "padded"), [(32, 0), (27, 5), (48, 16)])
def test_transpositions(sketch, unit, tokens, padded):
    tensors = transposition(tokens, 3, 20, padded)
    data, scale = inputs = drawn(tensors)
    wanted = data[:, 60:120].reshape(tokens, 3, 20).transpose(1, 2, 0) * scale
    wanted = np.pad(wanted, [(0, 0), (0, 0), (0, padded)])
    found = scheduled(tensors, sketch, unit)
    assert parallel_loops(found) == 1
    assert np.array_equal(run(found, inputs, wanted.shape), wanted)


def concatenation(channels, axis=-1, rows=(2, 3), epilogue=True):
    """Its kernel: tensors along an axis, a scale for each channel and ReLU after them."""
    from tvm import te, topi

    parts = [te.placeholder((*rows, count), name=f"part{at}") for at, count in enumerate(channels)]
    found = topi.concatenate(parts, axis)
    if not epilogue:
        return [*parts, found]
    scale = te.placeholder(found.shape[-1:], name="scale")
    return [*parts, scale, topi.nn.relu(topi.multiply(found, scale))]


@pytest.mark.parametrize(
    ("tensors", "found"),
    [
        (partial(transposition, 32, 3, 20), True),
        (partial(transposition, 27, 3, 20, 5), True),
        (partial(transposition, 27, 3, 20), False),  # no whole vectors
        (partial(concatenation, (32, 32)), False),
        (partial(convolution, (1, 4, 4, 8), (3, 3, 8, 16)), False),
    ],
)
def test_kernels_that_are_transpositions(tensors, found):
    import tvm
    from tvm import te

    from hetfeat.schedules.design_space import TaskSpace

    kernel = te.create_prim_func(tensors())
    assert transposed.is_transposition(tvm.s_tir.Schedule(kernel), 8) is found
    space = TaskSpace(tvm.IRModule({"main": kernel}), tvm.target.Target(ZEN4), 64)
    if found:
        ((text, _),) = space.sample(8, seed=0)
        assert is_custom_sketch(text)


@both(concatenated.SKETCHES)
@UNITS
@pytest.mark.parametrize("epilogue", [True, False], ids=["scaled", "alone"])
@pytest.mark.parametrize("channels", [(64, 32, 32), (8, 12), (96, 48), (384, 384), (5, 500)])
def test_concatenations(sketch, unit, epilogue, channels):
    tensors = concatenation(channels, epilogue=epilogue)
    inputs = drawn(tensors)
    wanted = np.concatenate(inputs[: len(channels)], -1)
    if epilogue:
        wanted = np.maximum(wanted * inputs[-1], 0)
    found = scheduled(tensors, sketch, unit)
    assert parallel_loops(found) == 1
    assert np.array_equal(run(found, inputs, wanted.shape), wanted)


@pytest.mark.parametrize(
    ("tensors", "piece"),
    [
        (partial(concatenation, (64, 32, 32)), 32),
        (partial(concatenation, (96, 48)), 48),
        (partial(concatenation, (384, 384)), 128),  # a longer one LLVM need not see
        (partial(concatenation, (6, 9)), None),  # too short
        (partial(concatenation, (1020, 4)), None),  # too many
        (partial(concatenation, (32, 32), axis=0), None),
        (partial(concatenation, (32,)), None),
        (partial(convolution, (1, 4, 4, 8), (3, 3, 8, 16)), None),
    ],
)
def test_kernels_that_are_concatenations(tensors, piece):
    import tvm
    from tvm import te

    from hetfeat.schedules.design_space import TaskSpace

    module = tvm.IRModule({"main": te.create_prim_func(tensors())})
    space = TaskSpace(module, tvm.target.Target(ZEN4), 64)
    traces = [json.loads(text) for text, _ in space.sample(4, seed=0)]
    unrolled = [of for kind, of, *_ in traces[0][0] if kind == "Unroll"]
    assert bool(len(traces) == 1 and unrolled) is bool(piece)
    if piece:
        (split,) = (i for i in traces[0][0] if i[0] == "Split" and i[3][0] == unrolled[0][0])
        assert split[1][-1] == piece


def test_a_kernel_without_decisions_is_drawn_once(monkeypatch):
    import tvm
    from tvm import te

    from hetfeat.schedules.design_space import TaskSpace

    finished, finish = [], TaskSpace._finish
    monkeypatch.setattr(
        TaskSpace, "_finish", lambda *given: finished.append(given) or finish(*given)
    )
    module = tvm.IRModule({"main": te.create_prim_func(concatenation((64, 32, 32)))})
    space = TaskSpace(module, tvm.target.Target(ZEN4), 64)
    assert len([*space.sample(8, seed=0)]) == len(finished) == 1


def test_a_kernel_of_two_outputs_is_no_concatenation():
    import tvm
    from tvm import te, topi

    from hetfeat.schedules.design_space import TaskSpace

    *parts, found = concatenation((32, 32), epilogue=False)
    module = tvm.IRModule({"main": te.create_prim_func([*parts, found, topi.nn.relu(found)])})
    drawn = [text for text, _ in TaskSpace(module, tvm.target.Target(ZEN4), 64).sample(1, seed=0)]
    assert [is_custom_sketch(text) for text in drawn] == [False]


def rows_of(kind, shape, axes=(-1,)):
    """A kernel that reduces rows, and reads none but these."""
    from tvm import te, topi

    from hetfeat.workloads.passes.exact_kernels import softmax

    data = te.placeholder(shape, name="data")
    if kind == "softmax":
        return [data, topi.nn.fast_softmax(data, axes[0])]
    if kind == "exact softmax":
        return [data, softmax(data, axes[0], shape[axes[0]] - 3)]
    if kind == "sum":
        return [data, topi.sum(data, axes)]
    scale, shift = (te.placeholder((shape[-1],), name=name) for name in ("scale", "shift"))
    return [data, scale, shift, topi.nn.layer_norm(data, scale, shift, axes)]


@both(row_wise.SKETCHES)
@UNITS
@pytest.mark.parametrize("shape", [(3, 5, 48), (9, 40), (1, 2, 8, 8)])
@pytest.mark.parametrize("kind", ["softmax", "exact softmax", "layer norm"])
def test_rows_that_are_reduced(sketch, unit, shape, kind):
    tensors = rows_of(kind, shape)
    inputs = drawn(tensors)
    data = torch.tensor(inputs[0]).double()
    if kind == "layer norm":
        scale, shift = (torch.tensor(given).double() for given in inputs[1:])
        wanted = nn.functional.layer_norm(data, shape[-1:], scale, shift).numpy()
    else:
        wanted = data.softmax(-1).numpy()
    found = scheduled(tensors, sketch, unit)
    assert parallel_loops(found) == 1
    assert_close(run(found, inputs, wanted.shape), wanted)


@pytest.mark.parametrize(
    ("tensors", "found"),
    [
        (partial(rows_of, "softmax", (3, 5, 48)), True),
        (partial(rows_of, "layer norm", (9, 40)), True),
        (partial(rows_of, "softmax", (3, 5, 47)), False),  # no whole vectors
        (partial(rows_of, "softmax", (2, 1000)), False),  # few rows
        (partial(rows_of, "softmax", (5, 48, 48), (1,)), False),  # columns
        (partial(rows_of, "sum", (9, 40)), False),  # nothing for each element
        (partial(concatenation, (32, 32)), False),
        (partial(convolution, (1, 4, 4, 8), (3, 3, 8, 16)), False),
    ],
)
def test_kernels_that_reduce_rows(tensors, found):
    import tvm
    from tvm import te
    from tvm.s_tir import Schedule

    from hetfeat.schedules.design_space import TaskSpace

    kernel = te.create_prim_func(tensors())
    assert row_wise.is_row_wise(Schedule(kernel), 8) is found
    if found:
        space = TaskSpace(tvm.IRModule({"main": kernel}), tvm.target.Target(ZEN4), 64)
        assert [is_custom_sketch(text) for text, _ in space.sample(4, seed=0)] == [True]


@pytest.mark.slow
@both(winograd.SKETCHES)
@pytest.mark.parametrize("tile", TRANSFORMS)
@pytest.mark.parametrize(
    ("data", "channels", "pads", "unit"),
    [
        ((1, 14, 14, 32), 48, (1, 1, 1, 1), AVX512),
        ((2, 7, 9, 16), 24, (0, 1, 2, 1), AVX2),
        ((1, 5, 5, 3), 5, (1, 1, 1, 1), AVX2),
    ],
)
def test_winograd(sketch, tile, data, channels, pads, unit):
    tensors = by_winograd(data, channels, tile, pads)
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(3, 3, data[3], channels)).astype(np.float32)
    (image,) = drawn(tensors[::2])
    wanted = np.maximum(exact(image, weights, pads), 0).transpose(0, 2, 3, 1)
    found = scheduled(tensors, sketch, unit)
    inputs = [image, transformed_filters(weights, tile)]
    assert_close(run(found, inputs, wanted.shape), wanted)
    assert parallel_loops(found) == {"by_rows": 1, "by_channels": 2}[sketch.__name__]


@pytest.mark.parametrize(
    ("size", "unit", "width"),
    [
        (64, AVX512, 32),
        (48, AVX512, 16),
        (40, AVX512, 8),
        (25, AVX512, 1),
        (48, AVX2, 8),
        (24, VectorUnit(4, 16), 4),
        (24, VectorUnit(4), 8),
    ],
)
def test_vectors_are_powers_of_two(size, unit, width):
    from tvm import te
    from tvm.s_tir import Schedule

    source = te.placeholder((size,), name="source")
    copy = te.compute((size,), lambda i: source[i], name="copy")
    schedule = Schedule(te.create_prim_func([source, copy]))
    (loop,) = schedule.get_loops(schedule.get_sblock("copy"))
    _, vector = blocked.vectorized(schedule, loop, unit)
    assert blocked.extent(schedule, vector) == width


class TestInATask:
    """What a task's design space makes of them."""

    @staticmethod
    def space(tensors, target, **options):
        import tvm
        from tvm import te

        from hetfeat.schedules.design_space import TaskSpace
        from hetfeat.workloads.relax import as_target

        module = tensors
        if isinstance(tensors, list):
            module = tvm.IRModule({"main": te.create_prim_func(tensors)})
        return TaskSpace(module, as_target(target), 64, **options)

    @pytest.mark.parametrize(("target", "others"), [(ZEN4, True), (HASWELL, False)])
    def test_a_few_programs_show_every_sketch(self, target, others):
        """With 16 registers those are ours alone."""
        space = self.space(kernels.matmul(64), target)
        skeletons = {
            json.dumps([i[:2] for i in json.loads(trace)[0]])
            for trace, _ in space.sample(len(space._sketches), seed=0)
        }
        assert len(skeletons) == len(space._sketches)
        drawn = [trace for trace, _ in space.sample(2 * len(skeletons), seed=0)]
        assert sum(map(is_custom_sketch, drawn)) == 4
        assert (len(drawn) > 4) == others

    @pytest.mark.parametrize("target", [ZEN4, HASWELL], ids=["avx512", "avx2"])
    def test_of_a_depthwise_convolution_there_are_ours_alone(self, target):
        space = self.space(convolution((1, 9, 9, 40), (3, 3, 1, 40), 1, 40), target)
        drawn = [trace for trace, _ in space.sample(4, seed=0)]
        assert drawn
        assert all(map(is_custom_sketch, drawn))

    @pytest.mark.parametrize(
        ("tensors", "names"),
        [
            (convolution((1, 7, 7, 512), (3, 3, 512, 512)), {"by_channels"}),
            (convolution((1, 56, 56, 512), (3, 3, 512, 512)), {"by_channels"}),
            (convolution((2, 56, 56, 512), (3, 3, 512, 512)), {"by_rows", "by_channels"}),
            (convolution((1, 7, 7, 512), (1, 1, 512, 512)), {"by_rows", "by_channels"}),
            (padded_product((64, 16384), 64, 0, 64), {"by_rows", "by_channels"}),
            (by_winograd((1, 7, 7, 512), 512, 2), {"by_channels"}),
            (by_winograd((1, 7, 7, 64), 64, 2), {"by_rows", "by_channels"}),
        ],
        ids=[
            "more weights",
            "9 MB and 6",
            "9 MB and 13",
            "1 MB",
            "64 channels",
            "winograd",
            "few, winograd",
        ],
    )
    def test_cores_divide_large_weights_and_do_not_each_read_them(self, tensors, names):
        sketches, _ = self.space(tensors, ZEN4)._own_sketches()
        assert {sketch.__name__ for sketch in sketches} == names

    @pytest.mark.parametrize(
        ("tensors", "count"),
        [
            (convolution((1, 7, 7, 512), (3, 3, 512, 512)), 2),
            (by_winograd((1, 7, 7, 512), 512, 2), 1),
            (padded_product((128, 768), 3072, 0, 128), 1),
        ],
        ids=["image", "winograd", "product"],
    )
    def test_with_16_registers_images_may_be_divided_by_rows(self, tensors, count):
        sketches, _ = self.space(tensors, HASWELL)._own_sketches()
        assert len(sketches) == count

    def test_half_a_vector_will_do(self):
        space = self.space(convolution((1, 14, 14, 24), (1, 1, 24, 72)), ZEN4)
        assert any(is_custom_sketch(trace) for trace, _ in space.sample(8, seed=0))

    def test_a_small_space_is_not_drawn_from_again_and_again(self, monkeypatch):
        space = self.space(kernels.scaled(2.0), ZEN4)
        drawn, finish = [], space._finish
        monkeypatch.setattr(space, "_finish", lambda made: drawn.append(made) or finish(made))
        found = len(list(space.sample(100, seed=0)))
        assert 0 < found < 10
        assert len(drawn) <= 16 * (found + 1) + found

    def test_traces_that_are_given_are_all_applied(self):
        space = self.space(kernels.matmul(64), ZEN4)
        first, last = (
            json.dumps(without_postproc(json.loads(trace))) for trace, _ in space.sample(2, seed=0)
        )
        assert len(list(space.apply([first] * 20 + [last]))) == 2

    def test_kernels_without_a_custom_sketch_keep_metaschedules(self):
        drawn = [trace for trace, _ in self.space(kernels.scaled(2.0), HASWELL).sample(2, seed=0)]
        assert drawn
        assert not any(map(is_custom_sketch, drawn))

    @pytest.mark.parametrize(
        ("target", "unit"),
        [
            ({"mcpu": "haswell"}, AVX2),
            ({"mcpu": "x86-64-v2"}, VectorUnit(4, 16)),
            ({"mcpu": "znver4"}, AVX512),
            ({"mcpu": "cortex-a72", "mtriple": "aarch64-linux-gnu"}, VectorUnit(4)),
        ],
        ids=lambda value: value.get("mcpu") if isinstance(value, dict) else "",
    )
    def test_vectors_are_those_of_the_target(self, target, unit):
        """TVM's `llvm_get_vector_width` says 512 of any x86 CPU."""
        from hetfeat.schedules.design_space import vector_unit
        from hetfeat.workloads.relax import as_target

        assert vector_unit(as_target({"kind": "llvm", "num-cores": 2, **target})) == unit

    @pytest.mark.parametrize(
        "tensors",
        [
            convolution((1, 14, 14, 64), (1, 1, 64, 128)),
            convolution((1, 7, 7, 32), (3, 3, 32, 64), stride=2),
            kernels.matmul(96),
        ],
        ids=["14x14", "4x4", "product"],
    )
    def test_sums_fit_sixteen_registers(self, tensors):
        space = self.space(tensors, HASWELL)
        drawn = [trace for trace, _ in space.sample(20, 0)]
        varied = [trace for trace, _ in space.vary(drawn, 20, 0)]
        assert drawn
        assert varied
        sums = [sums_of(json.loads(trace), 8) for trace in (*drawn, *varied)]
        assert 6 <= min(sums) <= max(sums) <= 13

    @pytest.mark.parametrize(
        "tensors",
        [convolution((1, 14, 14, 64), (1, 1, 64, 128)), kernels.matmul(96)],
        ids=["14x14", "product"],
    )
    def test_sums_fill_32_registers_where_vectors_have_the_full_rate(self, tensors):
        """MetaSchedule's programs stay as they are."""
        space = self.space(tensors, ZEN4, full_rate=True)
        drawn = [trace for trace, _ in space.sample(20, 0)]
        ours = [trace for trace in drawn if is_custom_sketch(trace)]
        assert 0 < len(ours) < len(drawn)
        varied = [trace for trace, _ in space.vary(ours, 20, 0)]
        assert varied
        sums = [sums_of(json.loads(trace), 16) for trace in (*ours, *varied)]
        assert 12 <= min(sums) <= max(sums) <= 29

    def test_rows_of_a_prime_number_fill_the_registers(self):
        """As the 197 of a ViT, of which 198 are computed: a tile has several rows."""
        space = self.space(padded_product((197, 32), 64, 0, 198), HASWELL)
        found = [json.loads(trace) for trace, _ in space.sample(8, 0)]
        assert found
        assert min(sums_of(trace, 8) for trace in found) >= 12
        rows = [trace[1][0][1] for trace in found]
        assert {math.prod(factors) for factors in rows} == {198}
        assert min(factors[-1] for factors in rows) >= 2

    @pytest.mark.parametrize("rows", [17, 71])
    def test_rows_that_no_tile_divides_fill_sixteen_registers(self, rows):
        tensors = convolution((1, 1, rows, 16), (1, 1, 16, 48))
        found = [json.loads(trace) for trace, _ in self.space(tensors, HASWELL).sample(8, 0)]
        assert found
        assert {sums_of(trace, 8) for trace in found} == {12}
        drawn = [trace for trace, _ in self.space(tensors, ZEN4).sample(8, 0)]
        ours = [trace for trace in drawn if is_custom_sketch(trace)]
        assert 0 < len(ours) < len(drawn)  # 32 registers hold 17 rows of a vector, too

    def test_where_few_rows_and_channels_are_fewer_sums_will_do(self):
        space = self.space(convolution((1, 2, 2, 8), (1, 1, 8, 8)), HASWELL)
        sums = [sums_of(json.loads(trace), 8) for trace, _ in space.sample(5, 0)]
        assert sums
        assert max(sums) <= 4

    def test_what_would_be_spilled_is_not_applied(self):
        space = self.space(convolution((1, 14, 14, 64), (3, 3, 64, 128)), HASWELL)
        trace = next(trace for trace, _ in space.sample(1, 0))
        instructions, decisions = json.loads(trace)
        sizes = iter(([7, 1, 2], [2, 7], [4, 2, 2], [1, 64]))
        spilled = [[index, next(sizes)] for index, value in decisions if isinstance(value, list)]
        assert sums_of([instructions, spilled], 8) == 28
        assert list(space.apply([json.dumps([instructions, spilled])])) == []
        assert len(list(space.apply([trace]))) == 1

    def test_of_other_kernels_and_targets_there_are_none(self, device):
        import tvm

        assert list(self.space(kernels.scaled(2.0), device.target)._custom_sketches()) == []
        space = self.space(kernels.matmul(64), device.target)
        assert len(list(space._custom_sketches())) == len(blocked.SKETCHES)
        space._context = SimpleNamespace(
            target=tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
        )
        assert list(space._custom_sketches()) == []

    def test_their_decisions_are_varied_and_carried_over(self, device):
        from hetfeat.transfer.schedule_library import carry_over

        small = self.space(convolution((1, 8, 8, 16), (3, 3, 16, 32)), device.target)
        large = self.space(convolution((1, 14, 14, 48), (3, 3, 48, 96)), device.target)
        donors = [trace for trace, _ in small.sample(10, seed=0) if is_custom_sketch(trace)]
        varied = [trace for trace, _ in small.vary(donors, 6, seed=0)]
        assert all(map(is_custom_sketch, varied))
        templates = [trace for trace, _ in large.sample(5, seed=0)]
        carried = [carry_over(donor, templates) for donor in donors]
        found = [trace for trace, _ in large.apply([text for text in carried if text])]
        assert found
        assert all(map(is_custom_sketch, found))

    def test_their_features_are_those_of_loops(self, device):
        space = self.space(kernels.matmul(64), device.target)
        for trace, features in space.sample(6, seed=0):
            assert features.shape[1] == 164
            assert math.isfinite(float(np.abs(features).max()))
            np.testing.assert_array_equal(space.features(trace), features)

    @pytest.mark.parametrize("liked", [True, False], ids=["ours", "MetaSchedule's"])
    def test_a_model_chooses_between_the_kinds(self, liked):
        from hetfeat.search.base import FixedGuidance
        from hetfeat.search.evolution import Evolution

        space = self.space(kernels.matmul(64), ZEN4)
        task = stores.task(1)

        class Proposer:
            def sample(self, _, count, seed):
                return [Program(task, trace, found) for trace, found in space.sample(count, seed)]

            def vary(self, _, parents, count, seed):
                found = space.vary(parents, count, seed)
                return [Program(task, trace, features) for trace, features in found]

        def score(programs):
            return np.array(
                [is_custom_sketch(program.trace) is liked for program in programs], float
            )

        asked = Evolution(task, Proposer(), 0, guidance=FixedGuidance(score)).ask(6)
        kinds = [is_custom_sketch(program.trace) for program in asked]
        assert len(kinds) == 6
        assert kinds.count(liked) >= 5  # but for one that is taken out of curiosity
