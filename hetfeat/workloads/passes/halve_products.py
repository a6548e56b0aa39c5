"""Products in half precision, as tensor cores or AMX compute them; what lies between stays float32.

The operands of a product are float16 or bfloat16, its sums float32. What a product reads is stored
in half where it is made, and so is what is only moved on from one of float16. Everything else is
computed in float32, whose casts become part of kernels that are there already. So softmax and
normalisations are exact.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, te, topi
from tvm.relax.expr_functor import PyExprMutator, mutator

from hetfeat.workloads import brain_floats
from hetfeat.workloads.passes import OUT_ELEMENTWISE_FUSABLE
from hetfeat.workloads.passes.pad_rows import tileable
from hetfeat.workloads.passes.simplify import operator_of, static_shape
from hetfeat.workloads.tile_shapes import tiles_of

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


def halve_products(module: tvm.IRModule, precision: str) -> tvm.IRModule:
    """Replaces products of float32 by products of half precision with sums of float32.

    Args:
        module: A normalised module with bound parameters, its products combined.
        precision: `float16`, of all products, or `bfloat16`, of those with weights that AMX's tiles
            divide.
    """
    halver = _Halver(module, {"float16": _Float16(), "bfloat16": _BFloat16()}[precision])
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            halver.builder_.update_func(variable, halver.halve(function))
    return relax.transform.DeadCodeElimination()(halver.builder_.get())


class _Float16:
    """Products that tensor cores compute."""

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
    """Products of weights that AMX computes, of bits that `workloads.brain_floats` makes.

    Args:
        spare: Largest share of rows that may be computed and not stored, 0.06 by default.
    """

    moves_on = False

    def __init__(self, spare: float = 0.06) -> None:
        self._rows = partial(tileable, spare=spare)

    def takes(self, value: Any) -> bool:
        return _fits_tiles(value, self._rows)

    def numbers(self, array: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        return brain_floats.narrowed(array)

    def narrow(self, builder: Any, value: Any) -> Any:
        return builder.emit_te(brain_floats.narrow, value, primfunc_name_hint="narrow")

    def widen(self, builder: Any, half: Any) -> Any:
        return builder.emit_te(brain_floats.widen, half, primfunc_name_hint="widen")

    def kernel(self, call: Any) -> Any:
        return None

    def product(self, builder: Any, call: Any, factors: Sequence[Any]) -> Any:
        *_, rows, _ = static_shape(call) or ()
        compute: Any = brain_floats.product
        hint, sides = "matmul", dict[str, list[int]]()
        if operator_of(call) == "relax.nn.conv2d":
            compute, hint = brain_floats.convolution, "conv2d"
            names = ("strides", "padding", "dilation")
            sides = {name: [int(n) for n in getattr(call.attrs, name)] for name in names}
        return builder.call_te(
            compute,
            *factors,
            self._rows(rows),
            **sides,
            primfunc_name_hint=hint,
            primfunc_attrs={"op_pattern": OUT_ELEMENTWISE_FUSABLE},
        )


@mutator
class _Halver(PyExprMutator):  # type: ignore[misc]
    """Keyed on variables: each that is to be stored in half has a second one."""

    def __init__(self, module: tvm.IRModule, half: _Float16) -> None:
        super().__init__(module)
        self._half = half

    def halve(self, function: Any) -> Any:
        bindings = [binding for block in function.body.blocks for binding in block.bindings]
        self._stored = _stored_in_half(bindings, self._half)
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

    def visit_call_(self, call: Any) -> Any:
        if not self._half.takes(call):
            return self.visit_expr_post_order(call)
        return self._half.product(self.builder_, call, [*map(self._factor, call.args)])

    def _factor(self, value: Any) -> Any:
        if isinstance(value, tvm.ir.GenericConst):
            return relax.const(self._half.numbers(value.value.numpy()))
        if value in self._halves:
            return self._halves[value]
        return self._half.narrow(self.builder_, self.visit_expr(value))


def _stored_in_half(bindings: Sequence[Any], half: _Float16) -> set[Any]:
    """Variables that a product reads, maybe moved in between, or that are moved on from one."""
    values = {binding.var: binding.value for binding in bindings}
    stored = set[Any]()
    for variable, value in reversed(values.items()):
        name = operator_of(value)
        read = value.args if half.takes(value) else ()
        if name in MOVES:
            source = value.args[0]
            is_of_product = source in values and half.takes(values[source])
            if variable in stored or (half.moves_on and is_of_product):
                read = (source,)
        stored |= {of for of in read if of in values and str(of.ty.dtype) == "float32"}
    return stored


def _is_product(value: Any) -> bool:
    """Whether it is a product of two tensors of float32."""
    return operator_of(value) in PRODUCTS and all(
        str(argument.ty.dtype) == "float32" for argument in value.args
    )


def _fits_tiles(value: Any, computed: Callable[[int], int]) -> bool:
    """Whether it is a product with constant weights that AMX's tiles divide."""
    if not _is_product(value) or not isinstance(value.args[1], tvm.ir.GenericConst):
        return False
    weights, shape = static_shape(value.args[1]) or (), static_shape(value) or ()
    if len(shape) < 2:
        return False
    if operator_of(value) == "relax.nn.conv2d":
        layouts = str(value.attrs.data_layout), str(value.attrs.kernel_layout)
        if layouts != ("NHWC", "HWIO") or int(value.attrs.groups) != 1:
            return False
    elif len(weights) != 2:
        return False
    return any(tiles_of(computed(shape[-2]), shape[-1], weights[-2], 2))


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
