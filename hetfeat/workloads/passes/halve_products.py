"""Products in half precision, as tensor cores compute them; what lies between stays float32.

The operands of a product are float16, its sums float32. What a product reads, or what is only moved
on from it, is stored as float16 where it is made. Everything else is computed in float32, whose
casts become part of kernels that are there already. So softmax and normalisations are exact.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, topi
from tvm.relax.expr_functor import PyExprMutator, mutator

from hetfeat.workloads.passes.simplify import operator_of

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


def halve_products(module: tvm.IRModule) -> tvm.IRModule:
    """Replaces products of float32 by products of float16 with sums of float32.

    Args:
        module: A normalised module with bound parameters, its products combined.
    """
    halver = _Halver(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            halver.builder_.update_func(variable, halver.halve(function))
    return relax.transform.DeadCodeElimination()(halver.builder_.get())


@mutator
class _Halver(PyExprMutator):  # type: ignore[misc]
    """Keyed on variables: each that is to be stored as float16 has a second one."""

    def halve(self, function: Any) -> Any:
        bindings = [binding for block in function.body.blocks for binding in block.bindings]
        self._stored = _stored_in_half(bindings)
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
        elif kernel := _ending_in_a_cast(value):
            made = self.builder_.call_te(
                kernel,
                *map(self.visit_expr, value.args),
                primfunc_name_hint=name.rpartition(".")[2],
            )
            self._keep(binding.var, self.builder_.emit(made))
        else:
            made = self.builder_.emit(self.visit_expr(value))
            self._keep(binding.var, self.builder_.emit(relax.op.astype(made, "float16")))

    def _keep(self, variable: Any, half: Any) -> None:
        """Has `half` read wherever a variable is."""
        self._halves[variable] = half
        self.set_var_remap(variable, self.builder_.emit(relax.op.astype(half, "float32")))

    def visit_call_(self, call: Any) -> Any:
        if not _is_product(call):
            return self.visit_expr_post_order(call)
        function, names = PRODUCTS[operator_of(call)]
        attributes = {name: getattr(call.attrs, name) for name in names}
        return function(*map(self._half, call.args), out_dtype="float32", **attributes)

    def _half(self, value: Any) -> Any:
        if isinstance(value, tvm.ir.GenericConst):
            return relax.const(value.value.numpy().astype(np.float16))
        if value in self._halves:
            return self._halves[value]
        return self.builder_.emit(relax.op.astype(self.visit_expr(value), "float16"))


def _stored_in_half(bindings: Sequence[Any]) -> set[Any]:
    """Variables that a product reads, maybe moved in between, or that are moved on from one."""
    values = {binding.var: binding.value for binding in bindings}
    stored = set[Any]()
    for variable, value in reversed(values.items()):
        name = operator_of(value)
        read = value.args if _is_product(value) else ()
        if name in MOVES:
            source = value.args[0]
            if variable in stored or (source in values and _is_product(values[source])):
                read = (source,)
        stored |= {of for of in read if of in values and str(of.ty.dtype) == "float32"}
    return stored


def _is_product(value: Any) -> bool:
    """Whether it is a product of two tensors of float32."""
    return operator_of(value) in PRODUCTS and all(
        str(argument.ty.dtype) == "float32" for argument in value.args
    )


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
