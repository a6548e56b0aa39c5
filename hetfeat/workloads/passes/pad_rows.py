"""Products whose number of rows has no divisor to tile by: 197, the tokens of a ViT.

A kernel keeps a tile of its output in registers. Of 197 rows, a prime, a tile has one or all, and
neither keeps them busy; of 198 it can have 6, 9 or 11. So the product is computed with a few rows
too many, which are not stored. Convolutions of integers are padded alike: no instruction of theirs
takes a last block of fewer pixels, as those of float32 do.
"""

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import te, tirx, topi
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target.codegen import target_has_features

from hetfeat.workloads.passes import OUT_ELEMENTWISE_FUSABLE
from hetfeat.workloads.passes.simplify import operator_of, rewritten, static_shape

TILES = range(4, 17)
"""Rows of a register tile: one load of a weight serves so many, and that many fit."""
FLOATS, INTEGERS = ("float32",), ("uint8", "int8", "int16")


def pad_rows(module: tvm.IRModule, spare: float = 0.05) -> tvm.IRModule:
    """Replaces matrix products of float32 whose rows cannot be tiled.

    Args:
        module: Module with its constants folded.
        spare: Largest share of rows that may be added, 0.05 by default.
    """
    return rewritten(module, _RowPadder(module, FLOATS, spare))


def pad_integer_rows(module: tvm.IRModule, spare: float = 0.06) -> tvm.IRModule:
    """Replaces products and convolutions of integers whose rows cannot be tiled.

    Args:
        module: Module in its final layout, integers in the type that they are multiplied in.
        spare: Largest share of rows that may be added; 0.06 by default: 17 become 18.
    """
    return rewritten(module, _RowPadder(module, INTEGERS, spare))


def tileable(rows: int, spare: float = 0.05) -> int:
    """The least number of rows from `rows` on that a tile of `TILES` divides.

    Args:
        rows: Number of rows of a product.
        spare: Largest share of rows that may be added; 0.05 by default. Where it takes more, the
            answer is `rows`.
    """
    padded = next(n for n in range(rows, rows + TILES[0]) if any(n % tile == 0 for tile in TILES))
    return padded if padded <= (1 + spare) * rows else rows


@mutator
class _RowPadder(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, dtypes: Sequence[str], spare: float) -> None:
        super().__init__(module)
        self._dtypes, self._spare = dtypes, spare
        target = tvm.target.Target.current()
        is_cpu = dtypes == INTEGERS and target.kind.name == "llvm"
        self._copies = is_cpu and target_has_features("amx-int8", target)

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if operator_of(call) == "relax.matmul":
            return self._product(call)
        if operator_of(call) == "relax.nn.conv2d" and self._dtypes == INTEGERS:
            return self._convolution(call)
        return call

    def _product(self, call: Any) -> Any:
        left, right = (_matrices(value, self._dtypes) for value in call.args)
        if not (left and right) or right[:-2] not in ((), left[:-2]):
            return call
        tall = len(left) - 2 if right[:-2] else left.index(max(left[:-1]))
        rows = tileable(left[tall], self._spare)
        if rows == left[tall]:
            return call
        return self.builder_.call_te(
            product,
            *call.args,
            tall,
            rows,
            str(call.ty.dtype),
            self._copies and len(left) - 2 == tall,
            primfunc_name_hint="matmul",
            primfunc_attrs={"op_pattern": OUT_ELEMENTWISE_FUSABLE},
        )

    def _convolution(self, call: Any) -> Any:
        attributes, shape = call.attrs, static_shape(call) or ()
        layouts = str(attributes.data_layout), str(attributes.kernel_layout)
        dtypes = {str(value.ty.dtype) for value in call.args}
        ours = layouts == ("NHWC", "HWIO") and int(attributes.groups) == 1 and shape
        if not ours or not dtypes <= set(self._dtypes):
            return call
        pixels = tileable(shape[2], self._spare)
        if pixels == shape[2]:
            return call
        sides = {
            name: [int(n) for n in getattr(attributes, name)]
            for name in ("strides", "padding", "dilation")
        }
        return self.builder_.call_te(
            convolution,
            *call.args,
            pixels,
            str(call.ty.dtype),
            **sides,
            primfunc_name_hint="conv2d",
            primfunc_attrs={"op_pattern": OUT_ELEMENTWISE_FUSABLE},
        )


def _matrices(value: Any, dtypes: Sequence[str]) -> tuple[int, ...]:
    """The shape of matrices of one of the types, else ()."""
    shape = static_shape(value) or ()
    return shape if len(shape) >= 2 and str(value.ty.dtype) in dtypes else ()


def product(
    data: te.Tensor,
    weights: te.Tensor,
    tall: int,
    rows: int,
    dtype: str = "float32",
    copies: bool = False,
) -> te.Tensor:
    """`data` [..., depth] times `weights`, computed with `rows` rows.

    Args:
        data: Tensor that has the rows, one of its leading dimensions.
        weights: Matrix [depth, columns] for all of `data`, or with its leading dimensions but the
            last.
        tall: Index of the dimension whose extent becomes `rows`.
        rows: Number of rows to compute, at least as many as there are.
        dtype: Type of the sums, `float32` by default.
        copies: Whether there are rows of zeros after the last, as AMX's tiles want them, for which
            `data` is copied; by default the last row is read again.
    """
    *many, depth = (int(extent) for extent in data.shape)
    *batch, _, columns = (int(extent) for extent in weights.shape)
    k = te.reduce_axis((0, depth), "k")
    if copies:
        after = [rows - many[tall] if axis == tall else 0 for axis in range(len(many) + 1)]
        data = topi.nn.pad(data, [0] * len(after), after, 0, name="pad_temp")

    def of_data(at: Sequence[Any]) -> Any:
        own = (te.min(a, many[i] - 1) if i == tall and not copies else a for i, a in enumerate(at))
        return cast(data(*own, k))

    def cast(value: Any) -> Any:
        return value if str(data.dtype) == dtype else tirx.Cast(dtype, value)

    whole = te.compute(
        (*many[:tall], rows, *many[tall + 1 :], columns),
        lambda *at: te.sum(of_data(at[:-1]) * cast(weights(*at[: len(batch)], k, at[-1])), axis=k),
        name="matmul",
    )
    return te.compute((*many, columns), lambda *at: whole(*at), name="matmul_rows")


def convolution(
    data: te.Tensor,
    weights: te.Tensor,
    pixels: int,
    dtype: str,
    *,
    strides: list[int],
    padding: list[int],
    dilation: list[int],
) -> te.Tensor:
    """A convolution of images [image, row, pixel, channel], rows computed with `pixels` pixels.

    Args:
        data: Tensor of the images.
        weights: Tensor [row, pixel, channel, output channel].
        pixels: Number of pixels of a row to compute, at least as many as there are.
        dtype: Type of the sums.
        strides: Steps of the window, down and to the right.
        padding: Zeros around an image: above, left, below, right.
        dilation: Steps within the window.
    """
    above, left, below, right = padding
    span = (int(weights.shape[1]) - 1) * dilation[1] + 1
    there = left + int(data.shape[2]) + right
    stored = (there - span) // strides[1] + 1
    right += max(0, (pixels - 1) * strides[1] + span - there)
    around = [above, left, below, right]
    whole = topi.nn.conv2d_nhwc(data, weights, strides, around, dilation, out_dtype=dtype)
    images, rows, _, channels = whole.shape
    shape = (images, rows, stored, channels)
    return te.compute(shape, lambda *at: whole(*at), name="conv2d_rows")
