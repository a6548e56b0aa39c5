"""Constants computed with numpy: TVM's FoldConstant compiles a function for each shape it meets.

What is not known here is left to FoldConstant, which is to run afterwards.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from hetfeat.workloads.passes.simplify import operator_of, rewritten, static_shape

ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "relax.add": np.add,
    "relax.divide": np.divide,
    "relax.less": np.less,
    "relax.multiply": np.multiply,
    "relax.negative": np.negative,
    "relax.sqrt": np.sqrt,
    "relax.subtract": np.subtract,
    "relax.where": np.where,
}
"""Operators that a batch norm, or an index from either end, comes to."""
SAME_ORDER = ("relax.expand_dims", "relax.reshape", "relax.squeeze")


@tvm.ir.transform.module_pass(opt_level=0)  # type: ignore[untyped-decorator]
def fold_constants(module: tvm.IRModule, _: tvm.ir.transform.PassContext) -> tvm.IRModule:
    """A pass over calls on constants: arithmetic, reshapes and permutations."""
    return rewritten(module, _Folder(module))


@mutator
class _Folder(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        shape, dtype = static_shape(call), str(getattr(call.ty, "dtype", ""))
        call = self.visit_expr_post_order(call)
        value = self._value(call, shape)
        if value is None or (value.shape, str(value.dtype)) != (shape, dtype):
            return call
        return relax.const(np.ascontiguousarray(value).reshape(shape))

    def _value(self, call: Any, shape: tuple[int, ...] | None) -> Any:
        """What a call on constants gives, None where that is not known here."""
        name = operator_of(call)
        if name in ELEMENTWISE:
            values = [self._constant(argument) for argument in call.args]
            if any(value is None for value in values):
                return None
            with np.errstate(all="ignore"):
                return np.asarray(ELEMENTWISE[name](*values))
        if name not in (*SAME_ORDER, "relax.permute_dims") or shape is None:
            return None
        value = self._constant(call.args[0])
        if value is None:
            return None
        if name in SAME_ORDER:
            return value.reshape(shape)
        axes = call.attrs.axes
        return value.transpose(None if axes is None else [int(axis) for axis in axes])

    def _constant(self, value: Any) -> Any:
        """The array or number of a constant, or of a variable bound to one."""
        if isinstance(value, relax.Var):
            value = self.lookup_binding(value)
        if isinstance(value, tvm.tirx.FloatImm):
            return float(value.value)
        return value.value.numpy() if isinstance(value, tvm.ir.GenericConst) else None
