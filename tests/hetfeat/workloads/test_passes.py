"""Rewrites of the graph: fewer kernels, the same numbers."""

import re

import numpy as np
import pytest
import torch
from torch import nn

from hetfeat.workloads.network import Network
from hetfeat.workloads.transformers import EncoderLayer

pytestmark = [pytest.mark.tvm]
torch.manual_seed(0)

ODD_ROWS = 83
"""A prime: such products are computed with 84 rows."""


class HardSwish(nn.Module):
    """Two convolutions with bias and batch norm, hard-swish and relu6 after them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (
            nn.Sequential(nn.Conv2d(width, 8, 3, padding=1, bias=True), nn.BatchNorm2d(8))
            for width in (4, 8)
        )
        for norm in (self.first[1], self.second[1]):
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)
            nn.init.uniform_(norm.weight, -1, 1)
            nn.init.uniform_(norm.bias, -1, 1)

    def forward(self, x):
        x = nn.functional.hardswish(self.first(x))
        return nn.functional.relu6(self.second(x))


class NormalisedFirst(nn.Module):
    """A batch norm that no convolution takes, as DenseNet's."""

    def __init__(self):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(4), nn.Conv2d(4, 8, 1, bias=False)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        return torch.relu(self.conv(torch.relu(self.norm(x))))


class AddedAcross(nn.Module):
    """What is added before a batch norm is no bias: it differs along the width."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 8, 1, bias=False), nn.BatchNorm2d(8)
        self.register_buffer("across", torch.arange(8.0))

    def forward(self, x):
        return self.norm(self.conv(x) + self.across)


class MaskedAfter(nn.Module):
    """Softmaxes of which single values are replaced, by what the scores were, and otherwise."""

    def forward(self, x):
        scores = x @ x.transpose(-2, -1)
        weights = scores.softmax(-1)
        below = torch.where(scores < 0, 0.0, weights) + torch.where(scores == 0, 0.5, weights)
        below += torch.where(torch.logical_not(scores == -torch.inf), 0.25, weights)
        unlike = torch.relu(x[..., :6]).log()  # -inf where x is negative
        below += weights.masked_fill(unlike == -torch.inf, 0.125)
        return below + weights.masked_fill(torch.ones(6, 6).tril() == 0, 0.0)


class Turned(nn.Module):
    """Permutations with axes counted from the end."""

    def forward(self, x):
        return (x.permute(0, -1, 1) * 2.0).sum(-1) + x[0].permute(-1, 0).exp().sum(1)


class Attention(nn.Module):
    """Attention with torch's own kernel, whose export guards against rows of -inf."""

    def __init__(self, masked: bool):
        super().__init__()
        causal = torch.full((6, 6), -torch.inf).triu(1)
        self.register_buffer("mask", causal if masked else None)

    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=self.mask)


class Squeezed(nn.Module):
    """Axes counted from the end, next to a convolution."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 2)

    def forward(self, x):
        return self.conv(x).unsqueeze(0).transpose(0, -1).squeeze(-1).contiguous()


class Activations(nn.Module):
    """Each over its whole range, and far beyond it."""

    def forward(self, x):
        f = nn.functional
        return torch.stack([f.gelu(x), f.silu(x), x.sigmoid(), x.tanh(), x.exp(), x.softmax(0)])


class TwoWidths(nn.Module):
    """Products of one input with weights of different widths, one without a bias."""

    def __init__(self):
        super().__init__()
        self.narrow, self.wide = nn.Linear(8, 3), nn.Linear(8, 5, bias=False)

    def forward(self, x):
        return torch.cat([self.wide(x), self.narrow(x) * 2], -1)


class SelfAttention(nn.Module):
    """torch's own, tokens first inside, with one product for queries, keys and values."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        return x + self.attention(x, x, x, need_weights=False)[0]


class Shares(nn.Module):
    """An attention whose shares are asked for in other ways, too."""

    def __init__(self, way: str):
        super().__init__()
        self.way = way

    def forward(self, x):
        scores = x @ x.transpose(-2, -1)
        shares = (scores * 0.5).softmax(-2 if self.way == "other axis" else -1)
        made = shares @ x
        if self.way == "squared":
            made = (shares * shares) @ x
        if self.way == "scores twice":
            made = made + scores.sum(-1, keepdim=True)
        if self.way == "right factor":
            made = x.transpose(-2, -1) @ shares
        if self.way == "with itself":
            made = shares @ shares
        if self.way == "divided":
            made = (shares / (x[..., :1].transpose(-2, -1) + 9)) @ x
        return (made, shares) if self.way == "output" else made


class Windows(nn.Module):
    """A Swin's attention: windows and tokens are both rows of the product."""

    def __init__(self):
        super().__init__()
        self.product = nn.Linear(8, 24)

    def forward(self, x):
        parts = self.product(x).reshape(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
        return parts[0] @ parts[1].transpose(-2, -1) @ parts[-1]


class Taken(nn.Module):
    """Single indices of what is no columns of a product."""

    def forward(self, x):
        return x[:, 2] + x[:, -1] + x.permute(1, 0, 2)[0] + x.reshape(-1, 4, 6).permute(1, 0, 2)[3]


class Selected(nn.Module):
    """Whole numbers of a table."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", 3 * torch.arange(5, dtype=torch.int32))

    def forward(self, x):
        return torch.index_select(self.table, 0, x)


class Products(nn.Module):
    """Rows in two dimensions, rows of many matrices, a matrix for all, a vector, whole numbers."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 5)
        self.register_buffer("shared", torch.randn(8, 3))

    def forward(self, x):
        scores = x @ x.transpose(-2, -1)
        whole = ((x * 4).int() @ (x[0, 0] * 4).int()).sum()
        each = (self.linear(x[:1]), self.linear(x[0]), scores @ x[0], x @ self.shared, x @ x[0, 0])
        return torch.stack([value.sum(-1 if value.ndim > 2 else 0).sum() for value in each]) + whole


def lowered(module: nn.Module, inputs: torch.Tensor, target: dict):
    """The lowered network, names of the kernels it calls in order, and what it computes."""
    import tvm
    from tvm import relax

    from hetfeat.workloads.relax import as_target, import_network, lower

    network = Network("n", module.eval(), (inputs,))
    found = lower(import_network(network), as_target(target))
    names = []

    def note(call):
        if isinstance(call, relax.Call) and getattr(call.op, "name", "") == "relax.call_tir":
            names.append(call.args[0].name_hint)

    relax.analysis.post_order_visit(found["main"], note)
    machine = relax.VirtualMachine(tvm.compile(found, as_target(target)), tvm.cpu())
    return names, machine["main"](tvm.runtime.tensor(inputs.numpy())).numpy()


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (HardSwish(), torch.randn(1, 4, 6, 6)),
        (NormalisedFirst(), torch.randn(1, 4, 6, 6)),
        pytest.param(AddedAcross(), torch.randn(1, 4, 8, 8), marks=pytest.mark.slow),
        pytest.param(MaskedAfter(), torch.randn(1, 2, 6, 8), marks=pytest.mark.slow),
        (Attention(masked=False), torch.randn(1, 2, 6, 8)),
        (Attention(masked=True), torch.randn(1, 2, 6, 8)),
        (Squeezed(), torch.randn(1, 3, 5, 5)),
        (Turned(), torch.randn(1, 4, 6)),
        pytest.param(
            EncoderLayer(width=16, heads=2), torch.randn(1, 6, 16), marks=pytest.mark.slow
        ),
        (TwoWidths(), torch.randn(6, 8)),
        pytest.param(
            EncoderLayer(width=16, heads=2), torch.randn(2, ODD_ROWS, 16), marks=pytest.mark.slow
        ),
        pytest.param(SelfAttention(), torch.randn(1, ODD_ROWS, 16), marks=pytest.mark.slow),
        (SelfAttention(), torch.randn(3, 6, 16)),
        (SelfAttention(), torch.randn(2, 61, 16)),  # whose scores are padded to 64
        (Shares("plain"), torch.randn(2, 61, 64)),  # as many as what is summed of each
        (Shares("squared"), torch.randn(2, 61, 8)),
        (Windows(), torch.randn(5, 7, 8)),
        (Taken(), torch.randn(4, 4, 6)),
        (Products(), torch.randn(2, ODD_ROWS, 8)),
    ],
    ids=[
        *(
            "hard-swish",
            "normalised first",
            "added across",
            "masked after",
            "attention",
            "masked",
            "squeezed",
            "turned",
            "encoder layer",
            "two widths",
        ),
        *(
            "odd rows",
            "own attention",
            "batch",
            "padded",
            "as deep",
            "squared",
            "windows",
            "taken",
            "products",
        ),
    ],
)
def test_numbers_are_those_of_torch(module, inputs, device):
    with torch.no_grad():
        wanted = module.eval()(inputs).numpy()
    _, got = lowered(module, inputs, device.target)
    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_a_hard_swish_is_part_of_its_convolution(device):
    names, _ = lowered(HardSwish(), torch.randn(1, 4, 6, 6), device.target)
    assert sum("conv2d" in name for name in names) == 2
    # Besides, the input goes to NHWC and the output back.
    assert len(names) == 4, names


def test_an_unmasked_softmax_is_one_kernel_and_a_masked_one_is_left_alone(device):
    inputs = torch.randn(1, 2, 6, 8)
    plain, _ = lowered(Attention(masked=False), inputs, device.target)
    masked, _ = lowered(Attention(masked=True), inputs, device.target)
    assert sum("softmax" in name for name in plain) == 1, plain
    assert not any("where" in name or "equal" in name for name in plain), plain
    assert any("where" in name for name in masked), masked


def test_products_of_one_input_are_one(device):
    names, _ = lowered(EncoderLayer(width=16, heads=2), torch.randn(1, 6, 16), device.target)
    # Query, key and value; the attention's two, what joins the heads, and the feed-forward's two.
    assert sum("matmul" in name for name in names) == 6, names
    names, _ = lowered(TwoWidths(), torch.randn(6, 8), device.target)
    assert sum("matmul" in name for name in names) == 1, names


@pytest.mark.parametrize(
    ("way", "tokens", "columns"),
    [
        ("plain", 61, 64),
        ("plain", 197, 208),
        ("plain", 64, 64),
        ("plain", 6, 6),  # 16 would be many more
        *((way, 61, 61) for way in ("other axis", "scores twice", "right factor")),
        *((way, 61, 61) for way in ("with itself", "divided", "output")),
    ],
)
def test_scores_become_whole_vectors_where_nothing_else_reads_them(device, way, tokens, columns):
    from hetfeat.workloads.passes.pad_scores import pad_scores
    from hetfeat.workloads.passes.simplify import operator_of, static_shape
    from hetfeat.workloads.relax import as_target, import_network, in_layout

    network = Network("n", Shares(way).eval(), (torch.randn(2, tokens, 8),))
    target = as_target(device.target)
    with target:
        found = pad_scores(in_layout(import_network(network), target))
    softmaxes = [
        binding.value
        for block in found["main"].body.blocks
        for binding in block.bindings
        if operator_of(binding.value) == "relax.nn.softmax"
    ]
    assert [static_shape(each) for each in softmaxes] == [(2, tokens, columns)]


@pytest.mark.parametrize("reach", [80.0, 8.0, 0.1])
def test_activations_are_near_those_of_torch(device, reach):
    x = torch.linspace(-reach, reach, 4001)
    _, got = lowered(Activations(), x, device.target)
    wanted = Activations()(x.double()).numpy()
    # Above 1 the error is relative.
    error = np.abs(got - wanted) / np.maximum(1, np.abs(wanted))
    assert error.max() <= 1e-6, error.max(axis=1)


def test_an_activation_is_part_of_the_kernel_before_it(device):
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU())
    names, _ = lowered(module, torch.randn(6, 8), device.target)
    assert len(names) == 1, names


def test_queries_keys_and_values_are_columns_of_their_product(device):
    names, _ = lowered(SelfAttention(), torch.randn(1, 6, 16), device.target)
    work = [name for name in names if not name.startswith("reshape")]
    # The product, three slices of it, scores, softmax, their product, the heads joined, and the
    # last product with the sum.
    assert len(work) == 9, work
    assert sum("strided_slice" in name for name in work) == 3, work
    assert "add" in work[-1] and work[-1].count("add") == 2, work


def test_taking_an_index_warns_of_nothing(device, capfd):
    lowered(Taken(), torch.randn(3, 4, 6), device.target)
    assert "Warning" not in capfd.readouterr().err


@pytest.mark.parametrize("far", [5, -1, 2**30, -(2**30)])
def test_a_row_beyond_its_table_is_nan(device, far):
    table = nn.Embedding(5, 8)
    _, got = lowered(table, torch.tensor([[1, far, 4]]), device.target)
    np.testing.assert_array_equal(got[0, [0, 2]], table.weight.detach().numpy()[[1, 4]])
    assert np.isnan(got[0, 1]).all()


@pytest.mark.parametrize(("far", "nearest"), [(5, 12), (-1, 0), (2**30, 12)])
def test_a_whole_number_beyond_its_table_is_the_nearest(device, far, nearest):
    _, got = lowered(Selected(), torch.tensor([1, far]), device.target)
    assert got.tolist() == [3, nearest]


@pytest.mark.parametrize(
    ("rows", "computed"),
    [(197, 198), (257, 258), (577, 580), (83, 84), (128, 128), (49, 49), (17, 17), (1, 1)],
)
def test_rows_that_no_tile_divides_become_a_few_more(rows, computed):
    from hetfeat.workloads.passes.pad_rows import tileable

    assert tileable(rows) == computed


def test_a_product_of_odd_rows_is_one_kernel_with_what_follows(device):
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU())
    names, _ = lowered(module, torch.randn(1, ODD_ROWS, 8), device.target)
    assert len([name for name in names if not name.startswith("reshape")]) == 1, names


def test_a_folded_bias_leaves_one_addition(device):
    from hetfeat.workloads.passes.simplify import simplify
    from hetfeat.workloads.relax import import_network

    network = Network("n", HardSwish().first.eval(), (torch.randn(1, 4, 6, 6),))
    from tvm import ir, relax

    step = relax.transform
    normal = [step.CanonicalizeBindings(), step.FoldConstant()]
    module = simplify(ir.transform.Sequential(normal)(import_network(network)))
    folded = [*normal, step.DeadCodeElimination(), step.FoldBatchnormToConv2D(), *normal]
    text = ir.transform.Sequential(folded)(module)["main"].script()
    assert "batch_norm" not in text
    assert text.count("R.add") == 1


def test_the_numbers_of_a_batch_norm_are_folded_once_for_all_variants(device):
    from hetfeat.workloads.relax import as_target, import_network, in_layout

    network = Network("n", NormalisedFirst().eval(), (torch.randn(1, 4, 6, 6),))
    text = in_layout(import_network(network), as_target(device.target))["main"].script()
    assert "batch_norm" not in text
    assert "sqrt" not in text
    assert "expand_dims" not in text
    assert (text.count("R.multiply("), text.count("R.add(")) == (1, 1)
    assert not re.search("R.(subtract|divide)", text)


@pytest.mark.parametrize(
    ("center", "scale", "axis"), [(True, True, 1), (True, False, 3), (False, True, -1)]
)
def test_a_batch_norm_is_a_scale_and_a_shift(center, scale, axis):
    import tvm
    from tvm import relax

    from hetfeat.workloads.passes.batch_norms import scale_and_shift

    rng = np.random.default_rng(0)
    gamma, beta, mean, variance = rng.uniform(0.5, 2, (4, 3)).astype(np.float32)
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType((2, 3, 4, 3), "float32"))
    with builder.function("main", [data]):
        numbers = [relax.const(given) for given in (gamma, beta, mean, variance)]
        norm = builder.emit(
            relax.op.nn.batch_norm(data, *numbers, axis, 0.25, center=center, scale=scale)
        )
        builder.emit_func_output(builder.emit(relax.TupleGetItem(norm, 0)))
    module = relax.transform.DeadCodeElimination()(scale_and_shift(builder.get()))
    assert "batch_norm" not in module.script()
    given = rng.normal(size=(2, 3, 4, 3)).astype(np.float32)
    built = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    got = built["main"](tvm.runtime.tensor(given)).numpy()
    along = [3 if at == axis % 4 else 1 for at in range(4)]
    wanted = (given - mean.reshape(along)) / np.sqrt(variance.reshape(along) + 0.25)
    wanted = wanted * (gamma.reshape(along) if scale else 1)
    wanted = wanted + (beta.reshape(along) if center else 0)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_constants_are_what_tvm_would_make_of_them():
    import tvm
    from tvm import relax
    from tvm.relax import op

    from hetfeat.workloads.passes.fold_constants import fold_constants

    rng = np.random.default_rng(0)
    square = relax.const(rng.uniform(1, 2, (3, 3)).astype("float32"))
    row, whole = relax.const(np.float32([[-4, 0.5, 9]])), relax.const(np.int64([7, -7, 2]))
    x = relax.Var("x", relax.TensorType((3, 3), "float32"))
    make = relax.BlockBuilder()
    with make.function("main", [x]):
        with make.dataflow():
            known = [
                make.emit(op.sqrt(op.add(square, tvm.tirx.FloatImm("float32", 1e-3)))),
                make.emit(op.divide(op.negative(row), op.subtract(square, row))),
                make.emit(op.permute_dims(op.multiply(square, row))),
                make.emit(op.permute_dims(op.expand_dims(square, 1), [2, 0, 1])),
                make.emit(op.squeeze(op.reshape(square, (1, 9)))),
                make.emit(op.where(op.less(square, row), square, row)),
            ]
            left = [make.emit(op.add(square, x)), make.emit(op.floor_divide(whole, whole))]
            output = make.emit_output(relax.Tuple([*known, *left]))
        make.emit_func_output(output)
    module = make.get()

    def calls(of):
        found = [binding.value for binding in of["main"].body.blocks[0].bindings]
        return [value.op.name for value in found if isinstance(value, relax.Call)]

    def run(of):
        machine = relax.VirtualMachine(tvm.compile(of, "llvm"), tvm.cpu())
        return machine["main"](tvm.runtime.tensor(np.ones((3, 3), "float32")))

    folded = fold_constants(module)
    assert calls(folded) == ["relax.add", "relax.floor_divide"]
    for got, wanted in zip(run(folded), run(module), strict=True):
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-6)
