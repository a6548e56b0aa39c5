"""Pads of ONNX as Relax's operator, which other passes know; TVM's importer writes them as code."""

from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.sym.analyzer import Analyzer

from hetfeat.workloads.passes.simplify import operator_of, rewritten, static_shape


def name_pads(module: tvm.IRModule) -> tvm.IRModule:
    """The module with `relax.nn.pad` in place of functions that pad with one number.

    Args:
        module: Module as an importer made it.
    """
    named = rewritten(module, _PadNamer(module))
    return relax.transform.DeadCodeElimination()(named)


@mutator
class _PadNamer(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if operator_of(call) != "relax.call_tir":
            return call
        if str(call.args[0].name_hint).rstrip("0123456789") != "pad":  # a mask looks alike
            return call
        pad = _pad_of(self.builder_.get()[call.args[0]])
        if pad is None:
            return call
        (value,), (before, number) = call.args[1].fields, pad
        shapes = zip(static_shape(value) or (), static_shape(call) or (), before, strict=True)
        around = [side for of, to, first in shapes for side in (first, to - of - first)]
        return relax.op.nn.pad(value, around, pad_value=number) if min(around) >= 0 else call


def _pad_of(function: Any) -> tuple[list[int], float] | None:
    """Elements before each axis, and the number, of a function that pads with one; else None."""
    store = function.body
    while not isinstance(store, tirx.BufferStore):
        store = getattr(store, "block", None) or getattr(store, "body", None)
        if store is None:
            return None
    if getattr(getattr(store.value, "op", None), "name", "") != "prim.if_then_else":
        return None
    _, load, number = store.value.args
    if not (hasattr(load, "indices") and isinstance(number, tirx.FloatImm)):
        return None
    simplify = Analyzer().simplify
    before = [simplify(to - of) for to, of in zip(store.indices, load.indices, strict=True)]
    if not all(isinstance(side, tirx.IntImm) for side in before):
        return None
    return [int(side) for side in before], float(number)
