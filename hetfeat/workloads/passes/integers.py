"""Quantised networks in integers: products of dequantised tensors are summed as they are stored.

A network comes as `quantize(product(dequantize(x), dequantize(weights)) + bias)`, which computes in
float32 what its file stores in 8 bits. Here the product is one of integers, its sum is multiplied
once and rounded once, and whatever only moves elements moves 8 bits. `workloads.integer_reference`
says what comes out, to the bit. What is left of quantising becomes plain arithmetic, through which
layouts pass.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from hetfeat.workloads import integer_rules as rules
from hetfeat.workloads.integer_reference import Evaluator, operation
from hetfeat.workloads.integer_tensors import Array, InexactError, Scaled
from hetfeat.workloads.passes.integer_graph import (
    GraphTensor,
    averaged,
    pooled,
    stored,
    with_number,
)
from hetfeat.workloads.passes.integer_moves import MOVERS, move
from hetfeat.workloads.passes.simplify import operator_of, rebind, rewritten, static_shape


@tvm.ir.transform.module_pass(opt_level=0)  # type: ignore[untyped-decorator]
def make_integers(module: tvm.IRModule, _: tvm.ir.transform.PassContext) -> tvm.IRModule:
    """A pass over a network as it was imported; one that is not quantised stays as it is."""
    if not is_quantised(module):
        return module
    made = rewritten(module, _IntegerMaker(module))
    return relax.transform.DeadCodeElimination()(relax.transform.CanonicalizeBindings()(made))


def is_quantised(module: tvm.IRModule) -> bool:
    """Whether a network, as it was imported, quantises or dequantises anything."""
    names = {operator_of(binding.value) for binding in bindings(module)}
    return not names.isdisjoint({"relax.quantize", "relax.dequantize"})


def stores_integers(module: tvm.IRModule) -> bool:
    """Whether a network has tensors of 8 bits."""
    return any(str(getattr(one.var.ty, "dtype", "")) in rules.QUANTISED for one in bindings(module))


def bindings(module: tvm.IRModule) -> list[Any]:
    """What is bound in the Relax functions of a module, in its order."""
    functions = [f for _, f in module.functions_items() if isinstance(f, relax.Function)]
    return [one for f in functions for block in f.body.blocks for one in block.bindings]


MAKERS = {
    "add": "add",
    "clip": "clip",
    "concat": "concat",
    "dequantize": "dequantize",
    "matmul": "matmul",
    "maximum": "maximum",
    "mean": "mean",
    "minimum": "minimum",
    "nn.avg_pool2d": "avg_pool2d",
    "nn.conv2d": "conv2d",
    "nn.max_pool2d": "max_pool2d",
    "nn.relu": "relu",
    "quantize": "quantize",
}
"""Method that makes integers of a call, by Relax's names without their first part."""


@mutator
class _IntegerMaker(PyExprMutator):  # type: ignore[misc]
    """Keeps, beside each float32 tensor, the integers that it is made of."""

    def visit_function_(self, function: Any) -> Any:
        self._known = Evaluator(dict.fromkeys(function.params))
        self._tensors: dict[Any, GraphTensor] = {}
        self._parts: dict[Any, list[GraphTensor]] = {}
        return super().visit_function_(function)

    def visit_var_binding_(self, binding: Any) -> None:
        made = None if self._is_known(binding) else self._made(binding.value)
        if isinstance(made, GraphTensor):
            self._tensors[binding.var] = made
            made = self._real(made)
        elif isinstance(made, list):
            self._parts[binding.var] = made
            made = relax.Tuple([self._real(part) for part in made])
        if made is None:
            super().visit_var_binding_(binding)
            return
        rebind(self, binding, made)

    def _made(self, value: Any) -> Any:
        """What integers make of a value: a tensor or parts of one, an expression, or None."""
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in self._parts:
            return self._parts[value.tuple_value][int(value.index)]
        if not isinstance(value, relax.Call):
            return None
        name, arguments = operation(value)
        if name in MOVERS:
            tensor = self._tensor(arguments[0])
            return tensor and MOVERS[name](self.builder_, tensor, value)
        return getattr(self, MAKERS[name])(value, *arguments) if name in MAKERS else None

    def _is_known(self, binding: Any) -> bool:
        """Whether it is a constant, which is then kept."""
        if self._known.is_constant(binding.value):
            try:
                self._known.bind(binding.var, binding.value)
            except InexactError:
                self._known.vary(binding.var)
                return False
            return True
        self._known.vary(binding.var)
        return False

    def _constant(self, value: Any) -> Any:
        """The array or `Scaled` that an argument always is, else None."""
        return self._known.value(value) if self._known.is_constant(value) else None

    def _tensor(self, value: Any) -> GraphTensor | None:
        return self._tensors.get(value) if isinstance(value, relax.Var) else None

    def _numbers(self, *values: Any) -> list[Array] | None:
        arrays = [self._constant(value) for value in values]
        return arrays if all(isinstance(array, np.ndarray) for array in arrays) else None

    def _float(self, tensor: GraphTensor) -> Any:
        """The integers of a tensor, their offset added, in float32."""
        value, offset = tensor.integers, tensor.offset
        if not offset.any():
            return self._cast(value, "float32")
        if tensor.dtype == "int32":
            added = self._emit(relax.op.add, value, offset.astype(np.int32))
            return self._cast(added, "float32")
        return self._emit(relax.op.add, self._cast(value, "float32"), offset.astype(np.float32))

    def _cast(self, value: Any, dtype: str) -> Any:
        return self.builder_.emit(relax.op.astype(value, dtype))

    def _emit(self, operator: Callable[[Any, Any], Any], value: Any, number: Array) -> Any:
        return with_number(self.builder_, operator, value, number)

    def _scaled(self, value: Any, scale: Array) -> Any:
        return value if (scale == 1).all() else self._emit(relax.op.multiply, value, scale)

    def _real(self, tensor: GraphTensor) -> Any:
        value = self._scaled(self._float(tensor), tensor.scale.astype(np.float32))
        for bound, operator in ((tensor.low, relax.op.maximum), (tensor.high, relax.op.minimum)):
            if math.isfinite(bound):
                value = self._emit(operator, value, np.asarray(bound, np.float32))
        return pooled(self.builder_, value, tensor.pools)

    def dequantize(self, call: Any, data: Any, scale: Any, zero: Any) -> Any:
        dimensions, axis = len(data.ty.shape), int(call.attrs.axis)
        numbers, dtype = self._numbers(scale, zero), str(data.ty.dtype)
        if numbers is None or dtype not in rules.RANGES:
            return None
        size, zeros = (rules.along(array, axis, dimensions) for array in numbers)
        zeros = zeros.astype(np.int64)
        limit = max(int(np.abs(bound - zeros).max()) for bound in rules.RANGES[dtype])
        tensor = GraphTensor(
            self.visit_expr(data), size.astype(np.float64), limit, offset=np.asarray(-zeros)
        )
        return tensor if size.size == zeros.size == 1 else self._real(tensor)

    def quantize(self, call: Any, value: Any, scale: Any, zero: Any) -> Any:
        dimensions, axis = len(call.ty.shape), int(call.attrs.axis)
        numbers, dtype = self._numbers(scale, zero), str(call.attrs.out_dtype)
        if dtype not in rules.QUANTISED:
            return None
        if numbers is None:
            return self._quantize_anew(dtype, value, scale, zero)
        size, zeros = (rules.along(array, axis, dimensions) for array in numbers)
        zeros, tensor, pools = zeros.astype(np.int64), self._tensor(value), ()
        low, high = -math.inf, math.inf
        if tensor is not None and size.size == 1:
            step = float(size.reshape(()))
            low, high = tensor.low / step, tensor.high / step
            same = tensor.dtype == dtype and (tensor.scale == step).all() and not tensor.is_cut
            if same and (tensor.offset == -zeros).all():
                return tensor.integers
            steps = self._scaled(self._float(tensor), rules.multiplier(tensor.scale, step))
            pools = tensor.pools
        else:
            steps = self._emit(relax.op.divide, self.visit_expr(value), size)
        least, most = rules.steps_range(dtype, zeros, low, high)
        steps = self._emit(relax.op.maximum, steps, least)
        steps = self._emit(relax.op.minimum, steps, most)
        whole = self._cast(self.builder_.emit(relax.op.round(steps)), "int32")
        if zeros.any():
            whole = self._emit(relax.op.add, whole, zeros.astype(np.int32))
        return pooled(self.builder_, self._cast(whole, dtype), pools)

    def _quantize_anew(self, dtype: str, value: Any, scale: Any, zero: Any) -> Any:
        """With a scale and a zero point that are computed from other values."""
        if any(math.prod(static_shape(number) or ()) != 1 for number in (scale, zero)):
            return None
        emit, low_high = self.builder_.emit, rules.RANGES[dtype]
        value, scale, zero = map(self.visit_expr, (value, scale, zero))
        steps = emit(relax.op.round(emit(relax.op.divide(value, scale))))
        steps = emit(relax.op.add(steps, self._cast(zero, "float32")))
        for operator, bound in zip((relax.op.maximum, relax.op.minimum), low_high, strict=True):
            steps = self._emit(operator, steps, np.asarray(bound, np.float32))
        return relax.op.astype(steps, dtype)

    def conv2d(self, call: Any, data: Any, weights: Any) -> Any:
        found = self._factors(data, weights, 0)
        if found is None or not rules.is_usual_layout(call):
            return None
        tensor, filters, scale = found
        if filters is None:
            return None
        limit = rules.largest_sum(filters.integers, 0)
        if not rules.fits_int32(limit):
            return None
        sums = self._convolved(tensor, filters.integers, call.attrs, int(call.attrs.groups))
        offset = tensor.offset.reshape(()) * filters.integers.sum((1, 2, 3))
        shape = (1, -1, 1, 1)
        return GraphTensor(
            sums,
            scale.reshape(shape),
            limit,
            product=True,
            offset=offset.reshape(shape),
        )

    def _convolved(self, tensor: GraphTensor, filters: Array, attributes: Any, groups: int) -> Any:
        """Sums of a tensor's integers as they are stored, zero points around them."""
        padding, data = [int(side) for side in attributes.padding], tensor.integers
        if any(padding) and tensor.offset.any():
            top, left, bottom, right = padding
            around = [0, 0, 0, 0, top, bottom, left, right]
            zero = -int(tensor.offset.reshape(()))
            data = self.builder_.emit(relax.op.nn.pad(data, around, pad_value=zero))
            padding = [0, 0, 0, 0]
        sums = relax.op.nn.conv2d(
            data,
            stored(filters),
            strides=attributes.strides,
            padding=padding,
            dilation=attributes.dilation,
            groups=groups,
            out_dtype="int32",
        )
        return self.builder_.emit(sums)

    def matmul(self, call: Any, data: Any, weights: Any) -> Any:
        found = self._factors(data, weights, len(weights.ty.shape) - 1)
        if found is None or min(len(data.ty.shape), len(weights.ty.shape)) < 2:
            return None
        tensor, matrix, scale = found
        dimensions = len(call.ty.shape)
        if matrix is not None:
            limit = rules.largest_sum(matrix.integers, matrix.integers.ndim - 1)
            left, right = tensor.integers, stored(matrix.integers)
            offset = tensor.offset.reshape(()) * matrix.integers.sum(-2, keepdims=True)
            offset = offset.reshape((1,) * (dimensions - offset.ndim) + offset.shape)
        else:
            limit = rules.largest_dot(int(data.ty.shape[-1]))
            left, right = self._wide(tensor), self._wide(self._tensors[weights])
            offset = np.zeros((1,) * dimensions, np.int64)
        if not rules.fits_int32(limit):
            return None
        sums = self.builder_.emit(relax.op.matmul(left, right, out_dtype="int32"))
        along = rules.along(scale, -1, dimensions)
        return GraphTensor(sums, along, limit, product=True, offset=offset)

    def _wide(self, tensor: GraphTensor) -> Any:
        """The integers of 8 bits, their zero point subtracted, in 16."""
        value = self._cast(tensor.integers, "int16")
        if not tensor.offset.any():
            return value
        return self._emit(relax.op.add, value, tensor.offset.astype(np.int16))

    def _factors(
        self, data: Any, weights: Any, axis: int
    ) -> tuple[GraphTensor, Scaled | None, Array] | None:
        """Both factors of a product, the second if it is constant, and the scale by channel."""
        tensor, known = self._tensor(data), self._constant(weights)
        factor = self._tensor(weights) if known is None else known
        if tensor is None or not isinstance(factor, Scaled):
            return None
        if not (tensor.is_factor and factor.is_factor) or tensor.scale.size > 1:
            return None
        channels = rules.per_channel(factor.scale, static_shape(weights) or (), axis)
        if channels is None:
            return None
        scale = np.asarray(float(tensor.scale.reshape(())) * channels)
        return tensor, None if known is None else factor, scale

    def add(self, call: Any, *terms: Any) -> Any:
        for value, other in (terms, terms[::-1]):
            tensor, bias = self._tensor(value), self._constant(other)
            if tensor is None or bias is None or not tensor.product or tensor.is_cut:
                continue
            if isinstance(bias, Scaled):
                bias = bias.integers * bias.scale
            shape = static_shape(value) or ()
            if np.broadcast_shapes(np.shape(bias), shape) != shape:
                continue
            steps = rules.bias_steps(np.asarray(bias, np.float64), tensor.scale)
            limit = tensor.limit + np.abs(steps).max(initial=0)
            if rules.fits_int32(limit):
                offset = tensor.offset + steps.astype(np.int64)
                return replace(tensor, offset=offset, limit=int(limit))
        return None

    def relu(self, call: Any, value: Any) -> Any:
        tensor = self._tensor(value)
        return tensor and tensor.cut(0, math.inf)

    def clip(self, call: Any, value: Any, low: Any, high: Any) -> Any:
        tensor = self._tensor(value)
        return tensor and tensor.cut(float(low.value), float(high.value))

    def maximum(self, call: Any, *values: Any) -> Any:
        return self._cut(values, lambda tensor, bound: tensor.cut(bound, math.inf))

    def minimum(self, call: Any, *values: Any) -> Any:
        return self._cut(values, lambda tensor, bound: tensor.cut(-math.inf, bound))

    def _cut(self, values: Any, cut: Callable[[GraphTensor, float], Any]) -> Any:
        for value, other in (values, values[::-1]):
            tensor, bound = self._tensor(value), self._constant(other)
            if tensor is not None and isinstance(bound, np.ndarray) and bound.ndim == 0:
                return cut(tensor, float(bound))
        return None

    def max_pool2d(self, call: Any, value: Any) -> Any:
        tensor = self._tensor(value)
        if tensor is None or not rules.is_plain_pooling(call):
            return None
        if tensor.product and rules.is_alike_in_windows(tensor.scale):
            return replace(tensor, pools=(*tensor.pools, call))
        return move(self.builder_, tensor, call)

    def avg_pool2d(self, call: Any, value: Any) -> Any:
        """A convolution of each channel with ones."""
        sides = [int(side) for side in call.attrs.pool_size]
        count, channels = math.prod(sides), (static_shape(value) or (0, 0))[1]
        tensor = self._summed(value, count)
        if tensor is None or not rules.is_plain_average(call):
            return None
        ones = np.ones((channels, 1, *sides), np.int64)
        return averaged(tensor, self._convolved(tensor, ones, call.attrs, channels), count)

    def _summed(self, value: Any, count: int) -> GraphTensor | None:
        """A tensor of whose integers, as they are stored, as many are summed in 32 bits."""
        tensor = self._tensor(value)
        whole = tensor is not None and tensor.is_factor and tensor.scale.size == 1
        return tensor if whole and rules.fits_int32(rules.largest_count(count)) else None

    def mean(self, call: Any, value: Any) -> Any:
        shape, axes = static_shape(value) or (), call.attrs.axis
        places = [int(axis) for axis in (range(len(shape)) if axes is None else axes)]
        count = math.prod(shape[place] for place in places)
        if (tensor := self._summed(value, count)) is None:
            return None
        whole = self._cast(tensor.integers, "int32")
        sums = self.builder_.emit(relax.op.sum(whole, places, bool(call.attrs.keepdims)))
        return averaged(tensor, sums, count)

    def concat(self, call: Any, parts: Any) -> Any:
        if not isinstance(parts, relax.Tuple):
            return None
        tensors = [self._tensor(part) for part in parts.fields]
        first = tensors[0]
        if first is None or not all(t and t.is_joinable and t.alike(first) for t in tensors):
            return None
        joined = relax.op.concat([t.integers for t in tensors if t], int(call.attrs.axis))
        return replace(first, integers=self.builder_.emit(joined))
