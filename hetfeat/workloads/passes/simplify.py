"""Relax rewrites that leave fewer and cheaper kernels; numbers stay what they were."""

import math
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

ELEMENTWISE = ("relax.add", "relax.multiply", "relax.nn.gelu", "relax.nn.relu", "relax.nn.silu")
"""Operators that follow a product in a transformer."""
SCALING = ("relax.reshape", "relax.multiply", "relax.divide")
"""Operators that may stand between the scores of an attention and their softmax, a mask apart."""
ASKED_OF_ROWS = ("relax.logical_not", "relax.astype", "relax.max")
"""Operators that torch exports between a row's scores being -inf and all of them being so."""
PAIRWISE = {
    "relax.max": relax.op.maximum,
    "relax.mean": relax.op.add,
    "relax.min": relax.op.minimum,
    "relax.sum": relax.op.add,
}
"""Operator on two tensors for each reduction over a stack of them; a mean is divided."""


def simplify(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrites a normalised module with bound parameters.

    - `clip` becomes `minimum(maximum(...))`: it has no layout inference, and would be wrapped in
      two transposes when convolutions become NHWC (every hard-swish has one).
    - The bias of a convolution goes into the mean of the batch norm that follows, since
      (x + b) - m = x - (m - b): TVM folds a batch norm into a convolution without bias only.
    - `squeeze` and `expand_dims` become `reshape`, and axes of permutations are counted from the
      front: TVM's layout inference fails on negative ones.
      A reshape of a reshape is one, and one to the same shape is dropped. A permutation that moves
      dimensions of 1 alone is a reshape.
    - What is taken beyond the end of a tensor is NaN, in integers the nearest: TVM's importers read
      whatever lies there, which may end the process.
    - Taking one index is a slice; the queries, keys or values of an attention, taken from what was
      reshaped and permuted before, are a slice of the product's columns.
    - What follows a matrix product element by element is computed before the reshape that torch
      exports after it, which would keep it out of the product's kernel.
    - torch exports a softmax that gives zero for a row of nothing but -inf, at the cost of five
      more passes over the scores. Scores without a mask have no such row.
    - What broadcasts a tensor to the shape it has is dropped.
    - A dropout is what goes into it: networks are deployed to infer.
    - A reduction over a stack of tensors, as ONNX's Min, Max, Sum and Mean are imported, is
      computed of two at a time: a stack has no layout when convolutions become NHWC.
    """
    return rewritten(module, _Simplifier(module))


def rewritten(module: tvm.IRModule, rewriter: PyExprMutator) -> tvm.IRModule:
    """The module with each Relax function as a rewriter that was made for it leaves it."""
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            rewriter.builder_.update_func(variable, rewriter.visit_expr(function))
    return rewriter.builder_.get()


def rebind(rewriter: PyExprMutator, binding: Any, value: Any) -> None:
    """Emits a value, for which the variable of a binding stands from then on."""
    builder = rewriter.builder_
    emit = builder.emit if isinstance(binding.var, relax.DataflowVar) else builder.emit_output
    rewriter.set_var_remap(binding.var, emit(value))


@mutator
class _Simplifier(PyExprMutator):  # type: ignore[misc]
    """Keyed on the operator of a call."""

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = operator_of(call)
        if name == "relax.clip":
            return _clip(call)
        if name == "relax.nn.batch_norm":
            return self._batch_norm(call)
        if name in PAIRWISE and (stacked := self._stacked(call)):
            return self._pairwise(name, stacked)
        if name == "relax.broadcast_to" and _same_shape(call):
            return call.args[0]
        if name in ("relax.squeeze", "relax.expand_dims", "relax.reshape"):
            return self._reshape(call.args[0], call.ty.shape)
        if name == "relax.permute_dims" and call.attrs.axes is not None:
            if _keeps_order(call):
                return self._reshape(call.args[0], call.ty.shape)
            return relax.op.permute_dims(call.args[0], _from_the_front(call.attrs.axes))
        if name == "relax.take":
            return self._take(call)
        if name in ELEMENTWISE and static_shape(call) is not None:
            return self._elementwise(call)
        if name == "relax.where" and (softmax := self._unmasked_softmax(call.args[2])) is not None:
            return call.args[2] if self._guards(call.args[0], softmax) else call
        return call

    def visit_tuple_getitem_(self, item: Any) -> Any:
        item = self.visit_expr_post_order(item)
        dropout = self._made_by(item.tuple_value, "relax.nn.dropout")
        if dropout is None:
            return item
        value = dropout.args[0]
        return value if item.index == 0 else relax.op.ones_like(value)

    def _stacked(self, call: Any) -> list[Any]:
        """The tensors of the stack that a call reduces to one of their shape, or none."""
        stack = self._made_by(call.args[0], "relax.stack")
        if stack is None or call.attrs.keepdims or call.attrs.axis is None:
            return []
        parts = self._bound(stack.args[0]) or stack.args[0]
        if not isinstance(parts, relax.Tuple) or static_shape(call) is None:
            return []
        dimensions = len(static_shape(call) or ()) + 1
        axes = [int(axis) % dimensions for axis in call.attrs.axis]
        return list(parts.fields) if axes == [int(stack.attrs.axis or 0) % dimensions] else []

    def _pairwise(self, name: str, parts: list[Any]) -> Any:
        value, *others = parts
        for other in others:
            value = self.builder_.emit(PAIRWISE[name](value, other))
        if name != "relax.mean":
            return value
        return relax.op.divide(value, relax.const(np.asarray(len(parts), str(value.ty.dtype))))

    def _batch_norm(self, call: Any) -> Any:
        data, gamma, beta, mean, variance = call.args
        biased = self._made_by(data, "relax.add")
        if biased is None or not constants(mean, biased.args[1]):
            return call
        if self._made_by(biased.args[0], "relax.nn.conv2d") is None:
            return call
        (channels,) = mean.value.shape
        if static_shape(biased.args[1]) not in ((channels, 1, 1), (1, channels, 1, 1)):
            return call
        bias = biased.args[1].value.numpy()
        shifted = relax.const(mean.value.numpy() - bias.reshape(-1))
        return relax.Call(call.op, [biased.args[0], gamma, beta, shifted, variance], call.attrs)

    def _reshape(self, value: Any, shape: Any) -> Any:
        if (inner := self._made_by(value, "relax.reshape")) is not None:
            value = inner.args[0]
        if tvm_ffi.structural_equal(value.ty.shape, shape):
            return value
        return relax.op.reshape(value, shape)

    def _take(self, call: Any) -> Any:
        value, index = call.args
        shape = static_shape(value)
        if not shape or not constants(index) or static_shape(index) != ():
            if str(call.attrs.mode) != "fast":
                return call
            beyond = "nan" if str(call.ty.dtype).startswith("float") else "clip"
            return relax.op.take(value, index, call.attrs.axis, beyond)
        axis = int(call.attrs.axis or 0) % len(shape)
        index = int(index.value.numpy()) % shape[axis]
        if axis == 0 and (columns := self._columns(value, shape[0], index)) is not None:
            value = columns
        else:
            value = relax.op.strided_slice(value, [axis], [index], [index + 1])
        return relax.op.reshape(self.builder_.emit(value), call.ty.shape)

    def _columns(self, value: Any, count: int, index: int) -> Any:
        """What `value[index]` of `count` is before a last reshape, if it is columns of a matrix.

        Then `value` is a reshape of a permutation that brings a dimension of a reshaped matrix to
        the front, and this dimension and those after it are the matrix's columns.
        """
        last = self._made_by(value, "relax.reshape")
        permuted = self._made_by(value if last is None else last.args[0], "relax.permute_dims")
        if permuted is None or permuted.attrs.axes is None:
            return None
        split = self._made_by(permuted.args[0], "relax.reshape")
        if split is None or len(matrix := static_shape(split.args[0]) or ()) != 2:
            return None
        axes = _from_the_front(permuted.attrs.axes)
        parts = list(static_shape(split) or ())
        width = math.prod(parts[axes[0] + 1 :])
        if (parts[axes[0]], count * width) != (count, matrix[1]):
            return None
        parts[axes[0]] = 1
        columns = relax.op.strided_slice(split.args[0], [1], [index * width], [(index + 1) * width])
        return relax.op.permute_dims(relax.op.reshape(columns, parts), axes)

    def _elementwise(self, call: Any) -> Any:
        products = map(self._product_before_reshape, call.args)
        flat = next((product for product in products if product is not None), None)
        if flat is None or any(
            static_shape(arg) not in ((), static_shape(call)) for arg in call.args
        ):
            return call
        arguments = [
            self._reshape(arg, flat.ty.shape) if static_shape(arg) else arg for arg in call.args
        ]
        applied = self.builder_.emit(relax.Call(call.op, arguments, call.attrs))
        return relax.op.reshape(applied, call.ty.shape)

    def _product_before_reshape(self, value: Any) -> Any:
        """The matrix that a reshape gave dimensions of 1, or None."""
        made = self._made_by(value, "relax.reshape")
        if made is None or (flat := static_shape(made.args[0])) is None or len(flat) != 2:
            return None
        same = [n for n in flat if n != 1] == [n for n in static_shape(made) or () if n != 1]
        return made.args[0] if same else None

    def _guards(self, condition: Any, softmax: Any) -> bool:
        """Whether it is true of rows of its scores of nothing but -inf alone, or of no numbers."""
        made, negated = self._bound(condition), False
        while (name := operator_of(made)) in ASKED_OF_ROWS:
            negated ^= name == "relax.logical_not"
            made = self._bound(made.args[0])
        if negated or not name or not self._is_of(made.args[0], softmax):
            return False
        return name == "relax.isnan" or (name == "relax.equal" and _is_minus_infinity(made.args[1]))

    def _is_of(self, value: Any, softmax: Any) -> bool:
        """Whether it is what a softmax was made of, or is itself, in whatever shape."""
        bare = self._bare(value)
        return bare.same_as(self._bare(softmax.args[0])) or self._bound(bare) is softmax

    def _bare(self, value: Any) -> Any:
        made = self._made_by(value, "relax.reshape")
        return value if made is None else made.args[0]  # of a reshape there is no other

    def _unmasked_softmax(self, value: Any) -> Any:
        """The softmax that a value is, if no mask has been added to its scores, or None."""
        softmax = made = self._made_by(value, "relax.nn.softmax")
        while made is not None and isinstance(value := made.args[0], relax.Var):
            if self._made_by(value, "relax.matmul") is not None:
                return softmax
            steps = (self._made_by(value, name) for name in SCALING)
            made = next((step for step in steps if step is not None), None)
        return None

    def _made_by(self, value: Any, name: str) -> Any:
        """The call to an operator that a variable is bound to, or None."""
        bound = self._bound(value)
        return bound if operator_of(bound) == name else None

    def _bound(self, value: Any) -> Any:
        """What a variable is bound to, or None."""
        return self.lookup_binding(value) if isinstance(value, relax.Var) else None


def _is_minus_infinity(value: Any) -> bool:
    return constants(value) and bool(np.all(value.value.numpy() == -np.inf))


def operator_of(value: Any) -> str:
    """The name of the operator that a call calls, or an empty string."""
    return str(getattr(value.op, "name", "")) if isinstance(value, relax.Call) else ""


def _clip(call: Any) -> Any:
    value, *limits = call.args
    dtype = str(value.ty.dtype)
    for limit, limited in zip(limits, (relax.op.maximum, relax.op.minimum), strict=True):
        bound = float(limit.value)
        if math.isfinite(bound):
            value = limited(value, relax.const(np.asarray(bound, dtype)))
    return value


def static_shape(value: Any) -> tuple[int, ...] | None:
    """The shape of a value, None where it is not known or not of numbers."""
    shape = getattr(getattr(value, "ty", None), "shape", None)
    if shape is None or not all(isinstance(n, int | tvm.tirx.IntImm) for n in shape):
        return None
    return tuple(int(extent) for extent in shape)


def _keeps_order(permutation: Any) -> bool:
    shape = static_shape(permutation.args[0])
    if shape is None:
        return False
    moved = [axis for axis in _from_the_front(permutation.attrs.axes) if shape[axis] != 1]
    return moved == sorted(moved)


def _from_the_front(axes: Any) -> list[int]:
    """All axes of a tensor, none of them counted from its end."""
    return [int(axis) % len(axes) for axis in axes]


def _same_shape(call: Any) -> bool:
    shapes = [expr.ty.shape for expr in (call.args[0], call)]
    return None not in shapes and tvm_ffi.structural_equal(*shapes)


def constants(*values: Any) -> bool:
    """Whether all of them are numbers that are known."""
    return all(isinstance(value, tvm.ir.GenericConst) for value in values)
