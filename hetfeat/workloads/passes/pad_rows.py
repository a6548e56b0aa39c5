"""Products of matrices whose number of rows has no divisor to tile by: 197, the tokens of a ViT.

A kernel keeps a tile of its output in registers. Of 197 rows, a prime, a tile has one or all, and
neither keeps them busy; of 198 it can have 6, 9 or 11. So the product is computed with a few rows
too many, copies of the last one, which are not stored.
"""

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import te
from tvm.relax.expr_functor import PyExprMutator, mutator

from hetfeat.workloads.passes import OUT_ELEMENTWISE_FUSABLE
from hetfeat.workloads.passes.simplify import operator_of, rewritten, static_shape

TILES = range(4, 17)
"""Rows of a register tile: one load of a weight serves so many, and that many fit."""


def pad_rows(module: tvm.IRModule) -> tvm.IRModule:
    """Replaces matrix products whose rows cannot be tiled.

    Args:
        module: Module with its constants folded.
    """
    return rewritten(module, _RowPadder(module))


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
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if operator_of(call) != "relax.matmul":
            return call
        left, right = map(_matrices, call.args)
        if not (left and right) or right[:-2] not in ((), left[:-2]):
            return call
        tall = len(left) - 2 if right[:-2] else left.index(max(left[:-1]))
        rows = tileable(left[tall])
        if rows == left[tall]:
            return call
        return self.builder_.call_te(
            product,
            *call.args,
            tall,
            rows,
            primfunc_name_hint="matmul",
            primfunc_attrs={"op_pattern": OUT_ELEMENTWISE_FUSABLE},
        )


def _matrices(value: Any) -> tuple[int, ...]:
    """The shape of float32 matrices, else ()."""
    shape = static_shape(value) or ()
    return shape if len(shape) >= 2 and str(value.ty.dtype) == "float32" else ()


def product(data: te.Tensor, weights: te.Tensor, tall: int, rows: int) -> te.Tensor:
    """`data` [..., depth] times `weights`, computed with `rows` rows.

    Args:
        data: Tensor that has the rows, one of its leading dimensions.
        weights: Matrix [depth, columns] for all of `data`, or with its leading dimensions but the
            last.
        tall: Index of the dimension whose extent becomes `rows`.
        rows: Number of rows to compute, at least as many as there are.
    """
    *many, depth = (int(extent) for extent in data.shape)
    *batch, _, columns = (int(extent) for extent in weights.shape)
    k = te.reduce_axis((0, depth), "k")

    def of_data(at: Sequence[Any]) -> Any:
        return data(*(te.min(a, many[i] - 1) if i == tall else a for i, a in enumerate(at)), k)

    whole = te.compute(
        (*many[:tall], rows, *many[tall + 1 :], columns),
        lambda *at: te.sum(of_data(at[:-1]) * weights(*at[: len(batch)], k, at[-1]), axis=k),
        name="matmul",
    )
    return te.compute((*many, columns), lambda *at: whole(*at), name="matmul_rows")
