"""Weights laid out with numpy, as tuned programs want them.

TVM's FoldConstant compiles a function for each layout, one after the other. What is not known here
is left to it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, tirx
from tvm.ir.expr import TensorLoad
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.s_tir import SBlockRealize

from hetfeat.workloads.passes.simplify import operator_of, rewritten

Array = npt.NDArray[Any]

_ARITHMETIC = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
}


@tvm.ir.transform.module_pass(opt_level=0)  # type: ignore[untyped-decorator]
def fold_layouts(module: tvm.IRModule, _: tvm.ir.transform.PassContext) -> tvm.IRModule:
    """A pass over calls of functions that move each element of a constant to another place."""
    return rewritten(module, _LayoutFolder(module))


@mutator
class _LayoutFolder(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._module = module

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if operator_of(call) != "relax.call_tir" or not isinstance(call.args[1], relax.Tuple):
            return call
        constants = list(call.args[1])
        if not all(isinstance(value, tvm.ir.GenericConst) for value in constants):
            return call
        found = moved(self._module[call.args[0]], [value.value.numpy() for value in constants])
        if found is None:
            return call
        folded = [relax.const(value) for value in found]
        return folded[0] if len(folded) == 1 else relax.Tuple(folded)


def moved(function: tirx.PrimFunc, sources: Sequence[Array]) -> list[Array] | None:
    """What a function that only moves elements makes of arrays; None for another one.

    Args:
        function: Function of the arrays, then of its outputs.
        sources: Arrays.
    """
    names = [parameter.name for parameter in function.params]
    known = dict(zip(names, sources, strict=False))
    made: dict[str, Array] = {}
    if not isinstance(function.body, SBlockRealize):
        return None
    body = function.body.block.body
    for nest in body.seq if isinstance(body, tirx.SeqStmt) else [body]:
        found = _moved_by(nest, known)
        if found is None:
            return None
        made |= found
    outputs = names[len(sources) :]
    return [made[name] for name in outputs] if set(outputs) == set(made) else None


def _moved_by(nest: tirx.Stmt, known: Mapping[str, Array]) -> dict[str, Array] | None:
    """What a nest of loops over all of an array makes of it, by the name of what it writes."""
    loops = []
    while isinstance(nest, tirx.For):
        loops.append(nest.loop_var)
        nest = nest.body
    if not isinstance(nest, SBlockRealize):
        return None
    store = nest.block.body
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, TensorLoad):
        return None
    source, axes = known.get(str(store.value.source)), list(nest.block.iter_vars)
    variables, extents = [axis.var for axis in axes], tuple(int(axis.dom.extent) for axis in axes)
    shape = [int(extent) for extent in store.buffer.shape]
    walks_all = _same(nest.iter_values, loops) and _same(store.value.indices, variables)
    if source is None or source.shape != extents or not walks_all:
        return None
    if math.prod(shape) != source.size:
        return None  # there is room that nothing is moved to
    grid = np.ogrid[tuple(map(slice, extents))]
    places = {variable.name: place for variable, place in zip(variables, grid, strict=True)}
    where: Any = 0
    for index, extent in zip(store.indices, shape, strict=True):
        value = _value(index, places)
        if value is None:
            return None
        where = where * extent + value
    where = np.broadcast_to(where, extents).reshape(-1)
    if not (np.bincount(where, minlength=source.size) == 1).all():
        return None
    target = np.empty(source.size, source.dtype)
    target[where] = source.reshape(-1)
    return {store.buffer.name: target.reshape(shape)}


def _same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    return len(found) == len(expected) and all(map(tirx.Var.same_as, found, expected))


def _value(index: Any, places: Mapping[str, Array]) -> Any:
    """An index at all places, None where it is of other arithmetic than layouts are made of."""
    if isinstance(index, tirx.IntImm):
        return int(index.value)
    if isinstance(index, tirx.Var):
        return places.get(index.name)
    operate = _ARITHMETIC.get(type(index))
    if operate is None:
        return None
    left, right = _value(index.a, places), _value(index.b, places)
    return None if left is None or right is None else operate(left, right)
