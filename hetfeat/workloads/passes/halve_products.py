"""Products in half precision, as a device computes them; what lies between stays float32.

Tensor cores multiply float16, and CPUs with AMX or AVX-512's extension bfloat16. What a product
reads is stored in half where it is made, and so is what is only moved on from one of float16. Sums
are float32. Everything else is computed in float32, whose casts become part of kernels that are
there already. So softmax and normalisations are exact. Elsewhere only weights are in half, and
become float32 as they are read.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, te, topi
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target.codegen import target_has_features

from hetfeat.workloads import brain_floats, half_products
from hetfeat.workloads.half_types import MULTIPLIED_BY
from hetfeat.workloads.passes import OUT_ELEMENTWISE_FUSABLE
from hetfeat.workloads.passes.pad_rows import tileable
from hetfeat.workloads.passes.simplify import operator_of, static_shape
from hetfeat.workloads.tile_shapes import LANES, tiles_of
from hetfeat.workloads.winograd.lowering import is_eligible

PRODUCTS = {
    "relax.matmul": (relax.op.matmul, ()),
    "relax.nn.conv2d": (
        relax.op.nn.conv2d,
        (
            "strides",
            "padding",
            "dilation",
            "groups",
            "data_layout",
            "kernel_layout",
            "out_layout",
        ),
    ),
}
"""Function and attributes, by operator."""
MOVES = ("relax.permute_dims", "relax.reshape", "relax.strided_slice")
"""Operators that change no number."""


def halve_products(module: tvm.IRModule, precision: str, target: tvm.target.Target) -> tvm.IRModule:
    """Replaces products of float32 by products of half precision with sums of float32.

    Args:
        module: A normalised module with bound parameters, its products combined.
        precision: `float16` or `bfloat16`.
        target: Target, which decides whether products are of two factors in half, or of weights in
            half and data in float32.
    """
    halver = _Halver(module, _ways(precision, target))
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            halver.builder_.update_func(variable, halver.halve(function))
    return relax.transform.DeadCodeElimination()(halver.builder_.get())


def _ways(precision: str, target: tvm.target.Target) -> "list[_Float16]":
    """How a target computes products in half; the first that takes a product has it."""
    if target.kind.name != "llvm":
        return [_Float16()]
    of_weights = {"float16": _Float16Weights(), "bfloat16": _BFloat16Weights()}[precision]
    if precision != "bfloat16":
        return [of_weights]
    ways = zip(MULTIPLIED_BY, (_Tiles(), _Pairs()), strict=True)
    fastest = [way for name, way in ways if target_has_features(name, target)][:1]
    return [*fastest, of_weights]


class _Float16:
    """Products that tensor cores compute."""

    of_data = True
    """Whether data is in half, too, or weights alone."""
    moves_on = True
    """Whether what is only moved on from a product is stored in half, too."""

    def takes(self, value: Any) -> bool:
        """Whether it is a product that is computed in half precision."""
        return _is_product(value)

    def numbers(self, array: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        """Constants in half."""
        return array.astype(np.float16)

    def narrow(self, builder: Any, value: Any) -> Any:
        """A tensor of float32 in half."""
        return builder.emit(relax.op.astype(value, "float16"))

    def widen(self, builder: Any, half: Any) -> Any:
        """A tensor in half as float32."""
        return builder.emit(relax.op.astype(half, "float32"))

    def kernel(self, call: Any) -> Any:
        """A kernel that computes a call in float32 and stores its half, if there is one."""
        return _ending_in_a_cast(call)

    def product(self, builder: Any, call: Any, factors: Sequence[Any]) -> Any:
        """A product of factors in half."""
        function, names = PRODUCTS[operator_of(call)]
        attributes = {name: getattr(call.attrs, name) for name in names}
        return function(*factors, out_dtype="float32", **attributes)


class _BFloat16(_Float16):
    """Products with weights in bits that `workloads.brain_floats` makes.

    Args:
        spare: Largest share of rows that may be computed and not stored, 0.06 by default.
    """

    moves_on = False
    copies = False
    """Whether rows that are computed and not stored are zeros, for which data is copied. Else a
    product reads its last row again, and a convolution computes no more than it stores."""

    def __init__(self, spare: float = 0.06) -> None:
        self._rows = partial(tileable, spare=spare)

    def numbers(self, array: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        return brain_floats.narrowed(array)

    def narrow(self, builder: Any, value: Any) -> Any:
        return builder.emit_te(brain_floats.narrow, value, primfunc_name_hint="narrow")

    def widen(self, builder: Any, half: Any) -> Any:
        return builder.emit_te(brain_floats.widen, half, primfunc_name_hint="widen")

    def kernel(self, call: Any) -> Any:
        return None

    def product(self, builder: Any, call: Any, factors: Sequence[Any]) -> Any:
        stored, *_ = _sizes(call)
        rows = self._rows(stored)
        compute: Any = partial(half_products.product, copies=self.copies)
        hint, sides = "matmul", dict[str, list[int]]()
        if operator_of(call) == "relax.nn.conv2d":
            compute, hint = half_products.convolution, "conv2d"
            rows = rows if self.copies else stored
            names = ("strides", "padding", "dilation")
            sides = {name: [int(n) for n in getattr(call.attrs, name)] for name in names}
        return builder.call_te(
            compute,
            *factors,
            rows,
            **sides,
            primfunc_name_hint=hint,
            primfunc_attrs={"op_pattern": OUT_ELEMENTWISE_FUSABLE},
        )


class _Tiles(_BFloat16):
    """Products that AMX computes."""

    copies = True

    def takes(self, value: Any) -> bool:
        if not _has_weights(value):
            return False
        rows, channels, depth = _sizes(value)
        return tiles_of(self._rows(rows), channels, depth, 2) is not None


class _Pairs(_BFloat16):
    """Products that AVX-512's `vdpbf16ps` computes.

    It is for AMD's CPUs: on an Intel, which has tiles, it took longer than float32
    (docs/experiments/2026-11-30-weights-in-half.md).
    """

    copies = True

    def takes(self, value: Any) -> bool:
        if not _has_weights(value):
            return False
        rows, channels, depth = _sizes(value)
        return rows > 1 and channels % LANES == 0 and depth % 2 == 0


class _BFloat16Weights(_BFloat16):
    """Products of weights in half, and data in float32.

    Args:
        few_pixels: Pixels of an output's image up to which weights of 3x3 are in half, 64 by
            default: each is used so often. Winograd's algorithm, which is faster, needs float32.
        spare: Largest share of rows that may be computed and not stored, 0.06 by default.
    """

    of_data = False

    def __init__(self, few_pixels: int = 64, spare: float = 0.06) -> None:
        super().__init__(spare)
        self._few_pixels = few_pixels

    def takes(self, value: Any) -> bool:
        if not _has_weights(value):
            return False
        _, *pixels, _ = static_shape(value) or ()
        return not is_eligible(value) or math.prod(pixels) <= self._few_pixels


class _Float16Weights(_BFloat16Weights):
    """The same in float16."""

    def numbers(self, array: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        return array.astype(np.float16)


@mutator
class _Halver(PyExprMutator):  # type: ignore[misc]
    """Keyed on variables: each that is to be stored in half has a second one."""

    def __init__(self, module: tvm.IRModule, ways: Sequence[_Float16]) -> None:
        super().__init__(module)
        self._ways, self._half = ways, ways[0]

    def halve(self, function: Any) -> Any:
        bindings = [binding for block in function.body.blocks for binding in block.bindings]
        self._stored = _stored_in_half(bindings, self._way_of)
        self._halves: dict[Any, Any] = {}
        return self.visit_expr(function)

    def visit_var_binding_(self, binding: Any) -> None:
        value, name = binding.value, operator_of(binding.value)
        if name in MOVES and value.args[0] in self._halves:
            moved = relax.Call(
                value.op, [self._halves[value.args[0]], *value.args[1:]], value.attrs
            )
            self._keep(binding.var, self.builder_.emit(moved))
        elif binding.var not in self._stored:
            super().visit_var_binding_(binding)
        elif kernel := self._half.kernel(value):
            made = self.builder_.call_te(
                kernel,
                *map(self.visit_expr, value.args),
                primfunc_name_hint=name.rpartition(".")[2],
            )
            self._keep(binding.var, self.builder_.emit(made))
        else:
            made = self.builder_.emit(self.visit_expr(value))
            self._keep(binding.var, self._half.narrow(self.builder_, made))

    def _keep(self, variable: Any, half: Any) -> None:
        """Has `half` read wherever a variable is."""
        self._halves[variable] = half
        self.set_var_remap(variable, self._half.widen(self.builder_, half))

    def _way_of(self, value: Any) -> _Float16 | None:
        """How a product is computed; None of one that stays float32, and of all else."""
        return next((way for way in self._ways if way.takes(value)), None)

    def visit_call_(self, call: Any) -> Any:
        way = self._way_of(call)
        if way is None:
            return self.visit_expr_post_order(call)
        return way.product(self.builder_, call, [self._factor(way, of) for of in call.args])

    def _factor(self, way: _Float16, value: Any) -> Any:
        if isinstance(value, tvm.ir.GenericConst):
            return relax.const(way.numbers(value.value.numpy()))
        if not way.of_data:
            return self.visit_expr(value)
        if value in self._halves:
            return self._halves[value]
        return way.narrow(self.builder_, self.visit_expr(value))


def _stored_in_half(bindings: Sequence[Any], way_of: Callable[[Any], _Float16 | None]) -> set[Any]:
    """Variables that a product reads, maybe moved in between, or that are moved on from one."""
    values = {binding.var: binding.value for binding in bindings}
    stored = set[Any]()
    for variable, value in reversed(values.items()):
        way, read = way_of(value), list[Any]()
        if way is not None and way.of_data:
            read = [*value.args]
        if operator_of(value) in MOVES:
            source = value.args[0]
            of_source = way_of(values[source]) if source in values else None
            if variable in stored or (of_source is not None and of_source.moves_on):
                read = [source]
        stored |= {of for of in read if of in values and str(of.ty.dtype) == "float32"}
    return stored


def _is_product(value: Any) -> bool:
    """Whether it is a product of two tensors of float32."""
    return operator_of(value) in PRODUCTS and all(
        str(argument.ty.dtype) == "float32" for argument in value.args
    )


def _has_weights(value: Any) -> bool:
    """Whether it is a product of float32 with a constant matrix, or filters for all channels."""
    if not _is_product(value) or not isinstance(value.args[1], tvm.ir.GenericConst):
        return False
    weights, shape = static_shape(value.args[1]) or (), static_shape(value) or ()
    if len(shape) < 2:
        return False
    if operator_of(value) == "relax.nn.conv2d":
        layouts = str(value.attrs.data_layout), str(value.attrs.kernel_layout)
        return layouts == ("NHWC", "HWIO") and int(value.attrs.groups) == 1
    return len(weights) == 2


def _sizes(product: Any) -> tuple[int, int, int]:
    """Rows, channels and depth of a product with weights."""
    *_, rows, channels = static_shape(product) or ()
    *_, depth, _ = static_shape(product.args[1]) or ()
    return rows, channels, depth


def _softmax(axis: int, x: te.Tensor) -> te.Tensor:
    return topi.cast(topi.nn.softmax(x, axis), "float16")


def _layer_norm(
    axes: list[int], epsilon: float, x: te.Tensor, gamma: te.Tensor, beta: te.Tensor
) -> te.Tensor:
    return topi.cast(topi.nn.layer_norm(x, gamma, beta, axes, epsilon), "float16")


def _ending_in_a_cast(call: Any) -> Any:
    """A kernel that computes a call in float32 and stores float16; None where there is none."""
    match operator_of(call):
        case "relax.nn.softmax":
            return partial(_softmax, int(call.attrs.axis))
        case "relax.nn.layer_norm":
            axes = [int(axis) for axis in call.attrs.axes]
            return partial(_layer_norm, axes, float(call.attrs.epsilon))
    return None
