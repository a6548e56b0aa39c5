"""Relax rewrites that leave fewer and cheaper kernels; numbers stay what they were."""

import math
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

SCALING = ("relax.reshape", "relax.multiply", "relax.divide")
"""What may stand between the scores of an attention and their softmax, a mask apart."""


def simplify(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrites a normalised module with bound parameters.

    - `clip` becomes `minimum(maximum(...))`: it has no layout inference, and would be wrapped in
      two transposes when convolutions become NHWC (every hard-swish has one).
    - The bias of a convolution goes into the mean of the batch norm that follows, since
      (x + b) - m = x - (m - b): TVM folds a batch norm into a convolution without bias only.
    - `squeeze` and `expand_dims` become `reshape`: TVM's layout inference fails on negative axes.
      A reshape of a reshape is one.
    - torch exports a softmax that gives zero for a row of nothing but -inf, at the cost of five
      more passes over the scores. Scores without a mask have no such row.
    - What broadcasts a tensor to the shape it has is dropped.
    """
    rewriter = _Simplifier(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            rewriter.builder_.update_func(variable, rewriter.visit_expr(function))
    return rewriter.builder_.get()


@mutator
class _Simplifier(PyExprMutator):  # type: ignore[misc]
    """Keyed on the operator of a call."""

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", "")
        if name == "relax.clip":
            return _clip(call)
        if name == "relax.nn.batch_norm":
            return self._batch_norm(call)
        if name == "relax.broadcast_to" and _same_shape(call):
            return call.args[0]
        if name in ("relax.squeeze", "relax.expand_dims"):
            return relax.op.reshape(call.args[0], call.ty.shape)
        if name == "relax.reshape" and (inner := self._made_by(call.args[0], name)) is not None:
            return relax.Call(call.op, [inner.args[0], call.args[1]], call.attrs)
        if name == "relax.where" and self._unmasked_softmax(call.args[2]):
            return call.args[2]
        return call

    def _batch_norm(self, call: Any) -> Any:
        data, gamma, beta, mean, variance = call.args
        biased = self._made_by(data, "relax.add")
        if biased is None or not _constants(mean, biased.args[1]):
            return call
        if self._made_by(biased.args[0], "relax.nn.conv2d") is None:
            return call
        bias = biased.args[1].value.numpy()
        if bias.size != mean.value.numpy().size:
            return call
        shifted = relax.const(mean.value.numpy() - bias.reshape(-1))
        return relax.Call(call.op, [biased.args[0], gamma, beta, shifted, variance], call.attrs)

    def _unmasked_softmax(self, value: Any) -> bool:
        made = self._made_by(value, "relax.nn.softmax")
        while made is not None and isinstance(value := made.args[0], relax.Var):
            if self._made_by(value, "relax.matmul") is not None:
                return True
            steps = (self._made_by(value, name) for name in SCALING)
            made = next((step for step in steps if step is not None), None)
        return False

    def _made_by(self, value: Any, name: str) -> Any:
        """The call to an operator that a variable is bound to, or None."""
        bound = self.lookup_binding(value) if isinstance(value, relax.Var) else None
        if isinstance(bound, relax.Call) and getattr(bound.op, "name", "") == name:
            return bound
        return None


def _clip(call: Any) -> Any:
    value, *limits = call.args
    dtype = str(value.ty.dtype)
    for limit, limited in zip(limits, (relax.op.maximum, relax.op.minimum), strict=True):
        bound = float(limit.value)
        if math.isfinite(bound):
            value = limited(value, relax.const(np.asarray(bound, dtype)))
    return value


def _same_shape(call: Any) -> bool:
    shapes = [expr.ty.shape for expr in (call.args[0], call)]
    return None not in shapes and tvm_ffi.structural_equal(*shapes)


def _constants(*values: Any) -> bool:
    return all(isinstance(value, tvm.ir.GenericConst) for value in values)
