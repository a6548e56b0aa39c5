"""Winograd convolution as a tensor expression, and the Relax rewrite that puts it in."""

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax, te, topi
from tvm.relax.expr_functor import PyExprMutator, mutator

from hetfeat.workloads.passes import OUT_ELEMENTWISE_FUSABLE
from hetfeat.workloads.passes.simplify import operator_of, rewritten
from hetfeat.workloads.winograd import TRANSFORMS, Choose, Matrix, transformed_filters


def use_winograd(module: tvm.IRModule, choose: Choose) -> tvm.IRModule:
    """Replaces 3x3 convolutions of stride 1, NHWC with constant HWIO weights.

    Args:
        module: Module whose layout is NHWC and whose constants are folded.
        choose: Callable that is asked for each of them.
    """
    return rewritten(module, _WinogradRewriter(module, choose))


@mutator
class _WinogradRewriter(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, choose: Choose) -> None:
        super().__init__(module)
        self.choose = choose

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if not is_eligible(call):
            return call
        data, weights = call.args
        tile = self.choose((_shape(data), _shape(weights), _shape(call)))
        if tile is None:
            return call
        filters = relax.const(transformed_filters(weights.value.numpy(), tile))
        padding = [int(side) for side in call.attrs.padding]
        return self.builder_.call_te(
            convolution,
            data,
            filters,
            tile,
            padding,
            primfunc_name_hint=f"conv2d_winograd{tile}",
            primfunc_attrs={"op_pattern": OUT_ELEMENTWISE_FUSABLE},
        )


def is_eligible(call: Any) -> bool:
    """Whether Winograd's algorithm computes a convolution: of 3x3, stride 1, constant weights."""
    if operator_of(call) != "relax.nn.conv2d":
        return False
    attrs, weights = call.attrs, call.args[1]
    return (
        (str(attrs.data_layout), str(attrs.kernel_layout)) == ("NHWC", "HWIO")
        and isinstance(weights, tvm.ir.GenericConst)
        and str(weights.ty.dtype) == "float32"
        and weights.value.shape[:2] == (3, 3)
        and {int(n) for n in (*attrs.strides, *attrs.dilation, attrs.groups)} == {1}
    )


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in value.ty.shape)


def convolution(data: te.Tensor, filters: te.Tensor, tile: int, padding: list[int]) -> te.Tensor:
    """The convolution of `data` with transformed `filters`.

    Stages and their names are what TVM's own schedule rules for Winograd on CPUs expect.

    Args:
        data: Input, float32 [n, height, width, channels in].
        filters: Transformed filters, float32 [tile+2, tile+2, channels in, channels out].
        tile: Side of an output tile in elements.
        padding: Padding in elements: top, left, bottom, right.
    """
    transforms, side = TRANSFORMS[tile], tile + 2
    count, height, width, depth = (int(extent) for extent in data.shape)
    top, left, bottom, right = padding
    out_height, out_width = height + top + bottom - 2, width + left + right - 2
    rows, columns = -(-out_height // tile), -(-out_width // tile)
    per_image = rows * columns
    positions, channels = count * per_image, int(filters.shape[3])

    tiles = _input_tiles(data, tile, (rows, columns), (top, left))
    into = _constant(transforms.inputs.T, "B")
    a, b = te.reduce_axis((0, side), "r_a"), te.reduce_axis((0, side), "r_b")
    packed = te.compute(
        (side, side, positions, depth),
        lambda y, x, p, c: te.sum(tiles[a, b, p, c] * into[a, y] * into[b, x], axis=[a, b]),
        name="data_pack",
        attrs={"schedule_rule": "conv2d_nhwc_winograd_data_pack"},
    )
    k = te.reduce_axis((0, depth), "ci")
    products = te.compute(
        (side, side, positions, channels),
        lambda y, x, p, c: te.sum(packed[y, x, p, k] * filters[y, x, k, c], axis=k),
        name="bgemm",
    )
    out = _constant(transforms.outputs.T, "A")
    c, d = te.reduce_axis((0, side), "r_a"), te.reduce_axis((0, side), "r_b")
    inverse = te.compute(
        (tile, tile, positions, channels),
        lambda y, x, p, o: te.sum(products[c, d, p, o] * out[c, y] * out[d, x], axis=[c, d]),
        name="inverse",
        attrs={"schedule_rule": "conv2d_nhwc_winograd_inverse"},
    )
    return te.compute(
        (count, out_height, out_width, channels),
        lambda n, y, x, o: inverse[
            y % tile, x % tile, n * per_image + y // tile * columns + x // tile, o
        ],
        name="conv2d_winograd",
    )


def _input_tiles(
    data: te.Tensor, tile: int, grid: tuple[int, int], before: tuple[int, int]
) -> te.Tensor:
    """The overlapping tiles of the padded input, [tile+2, tile+2, positions, channels in].

    Args:
        data: Input, float32 [n, height, width, channels in].
        tile: Side of an output tile in elements.
        grid: Output tiles of an image: rows, columns.
        before: Padding in elements: top, left.
    """
    (rows, columns), (top, left), side = grid, before, tile + 2
    count, height, width, depth = (int(extent) for extent in data.shape)
    below = rows * tile + 2 - height - top
    beside = columns * tile + 2 - width - left
    padded = topi.nn.pad(data, [0, top, left, 0], [0, below, beside, 0], name="data_pad")
    return te.compute(
        (side, side, count * rows * columns, depth),
        lambda y, x, p, c: padded[
            p // (rows * columns),
            p // columns % rows * tile + y,
            p % columns * tile + x,
            c,
        ],
        name="input_tile",
        attrs={"schedule_rule": "None"},
    )


def _constant(matrix: Matrix, name: str) -> te.Tensor:
    """A small matrix that disappears from the code once the loops over it are unrolled.

    `topi.utils.const_matrix` asks for each element in turn. Halves are asked for here, which
    makes a program of F(4,3) compile in three fifths of the time.
    """

    def chosen(index: Any, elements: Sequence[Any], first: int = 0) -> Any:
        if len(elements) == 1:
            return elements[0]
        half = len(elements) // 2
        low = chosen(index, elements[:half], first)
        return tvm.tirx.Select(
            index < first + half, low, chosen(index, elements[half:], first + half)
        )

    rows = [[tvm.tirx.const(float(value), "float32") for value in row] for row in matrix]
    return te.compute(
        matrix.shape,
        lambda i, j: chosen(i, [chosen(j, row) for row in rows]),
        name=name,
        attrs={"const_matrix": True, "schedule_rule": "None"},
    )
