"""Functions of float32 in quantised networks as kernels that every CPU rounds alike.

The formulas are those that `workloads.integer_functions` computes in numpy.
"""

import math
from collections.abc import Callable
from typing import Any

import tvm
from tvm import te
from tvm.relax.expr_functor import PyExprMutator, mutator

from hetfeat.workloads import exact_formulas as formulas
from hetfeat.workloads.passes.keep_roundings import ELEMENTWISE
from hetfeat.workloads.passes.simplify import operator_of, rewritten


def spell_exactly(module: tvm.IRModule) -> tvm.IRModule:
    """Replaces the functions of float32 of a module in its final layout, for a target of LLVM."""
    return rewritten(module, _ExactSpeller(module))


class _Tir:
    """Expressions of float32; a fence keeps a product from being made one with a sum."""

    def product(self, left: Any, right: Any) -> Any:
        made = left * right
        return tvm.tirx.call_llvm_pure_intrin("float32", "llvm.arithmetic.fence", made)

    def most(self, value: Any, low: float) -> Any:
        return tvm.tirx.Max(value, tvm.tirx.const(low, "float32"))

    def least(self, value: Any, high: float) -> Any:
        return tvm.tirx.Min(value, tvm.tirx.const(high, "float32"))

    def floor(self, value: Any) -> Any:
        return te.floor(value)

    def rint(self, value: Any) -> Any:
        return te.nearbyint(value)

    def sqrt(self, value: Any) -> Any:
        return te.sqrt(value)

    def magnitude(self, value: Any) -> Any:
        return te.abs(value)

    def power_of_two(self, exponent: Any) -> Any:
        bits = tvm.tirx.shift_left(exponent.astype("int32") + 127, tvm.tirx.const(23, "int32"))
        return tvm.tirx.reinterpret("float32", bits)


OF_TIR = _Tir()


@mutator
class _ExactSpeller(PyExprMutator):  # type: ignore[misc]
    """Keyed on the operator of a call; other types than float32 are left as they are."""

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = operator_of(call).removeprefix("relax.")
        if str(getattr(call.ty, "dtype", "")) != "float32":
            return call
        if name in formulas.ELEMENTWISE:
            return self._elementwise(call, formulas.ELEMENTWISE[name], name)
        if name == "nn.softmax":
            return self.builder_.call_te(softmax, call.args[0], int(call.attrs.axis))
        if name == "nn.layer_norm":
            axes, epsilon = [int(axis) for axis in call.attrs.axes], float(call.attrs.epsilon)
            return self.builder_.call_te(_layer_norm, *call.args, axes, epsilon)
        if name == "mean":
            (data,) = call.args
            given = call.attrs.axis
            axes = [int(axis) for axis in (range(len(data.ty.shape)) if given is None else given)]
            return self.builder_.call_te(_mean, data, axes, bool(call.attrs.keepdims))
        return call

    def _elementwise(self, call: Any, formula: Callable[..., Any], name: str) -> Any:
        def compute(data: te.Tensor) -> te.Tensor:
            return te.compute(data.shape, lambda *at: formula(OF_TIR, data(*at)), name="exact")

        return self.builder_.call_te(
            compute,
            call.args[0],
            primfunc_name_hint=f"exact_{name.rpartition('.')[2]}",
            primfunc_attrs={"op_pattern": ELEMENTWISE},
        )


def softmax(data: te.Tensor, axis: int, count: int | None = None) -> te.Tensor:
    """With the names that TOPI's has, by which tasks are named.

    Args:
        data: What is asked for shares along an axis.
        axis: The axis.
        count: Number of elements along it whose share is not zero at once; all by default.
    """
    axis %= len(data.shape)
    count = count or int(data.shape[axis])
    highest = _reduced(data, [axis], te.max, "T_softmax_maxelem")

    def share(*at: Any) -> Any:
        of_row = highest(*_at_first(at, [axis]))
        return formulas.softmax_share(OF_TIR, data(*at), of_row, count).astype("int32")

    shares = te.compute(data.shape, share, name="T_softmax_exp")
    total = _reduced(shares, [axis], te.sum, "T_softmax_expsum")

    def divided(*at: Any) -> Any:
        return shares(*at).astype("float32") / total(*_at_first(at, [axis])).astype("float32")

    return te.compute(data.shape, divided, name="T_softmax_norm")


def _layer_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, axes: list[int], epsilon: float
) -> te.Tensor:
    axes = [axis % len(data.shape) for axis in axes]
    mean = _mean_kept(data, axes, "layer_norm_mean")
    deviation = te.compute(
        data.shape, lambda *at: data(*at) - mean(*_at_first(at, axes)), name="deviation"
    )
    square = te.compute(
        data.shape, lambda *at: OF_TIR.product(deviation(*at), deviation(*at)), name="square"
    )
    variance = _mean_kept(square, axes, "layer_norm_variance")

    def scaled(*at: Any) -> Any:
        of_row, own = variance(*_at_first(at, axes)), [at[axis] for axis in axes]
        whole = formulas.normalised(OF_TIR, deviation(*at), of_row, epsilon)
        return OF_TIR.product(whole, gamma(*own)) + beta(*own)

    return te.compute(data.shape, scaled, name="layer_norm")


def _mean(data: te.Tensor, axes: list[int], keepdims: bool) -> te.Tensor:
    axes = [axis % len(data.shape) for axis in axes]
    mean = _mean_kept(data, axes, "exact_mean")
    if keepdims:
        return mean
    kept = [axis for axis in range(len(data.shape)) if axis not in axes]

    def moved(*at: Any) -> Any:
        places = dict(zip(kept, at, strict=True))
        return mean(*(places.get(axis, 0) for axis in range(len(data.shape))))

    return te.compute([data.shape[axis] for axis in kept], moved, name="exact_mean_moved")


def _mean_kept(data: te.Tensor, axes: list[int], name: str) -> te.Tensor:
    """The mean over axes, which stay, by `exact_formulas`."""
    count = math.prod(int(data.shape[axis]) for axis in axes)
    magnitude = te.compute(data.shape, lambda *at: te.abs(data(*at)), name=f"{name}_magnitude")
    largest = _reduced(magnitude, axes, te.max, f"{name}_largest")
    step = te.compute(
        largest.shape,
        lambda *at: formulas.step_of(OF_TIR, largest(*at), count),
        name=f"{name}_step",
    )

    def in_steps(*at: Any) -> Any:
        of_row = step(*_at_first(at, axes))
        return formulas.in_steps(OF_TIR, data(*at), of_row).astype("int32")

    steps = te.compute(data.shape, in_steps, name=f"{name}_steps")
    total = _reduced(steps, axes, te.sum, f"{name}_total")

    def mean(*at: Any) -> Any:
        return formulas.mean_of(OF_TIR, total(*at).astype("float32"), step(*at), count)

    return te.compute(total.shape, mean, name=name)


def _reduced(data: te.Tensor, axes: list[int], reduce: Callable[..., Any], name: str) -> te.Tensor:
    """A reduction over axes, which stay."""
    reduced = [te.reduce_axis((0, data.shape[axis])) for axis in axes]

    def value(*at: Any) -> Any:
        places = dict(zip(axes, reduced, strict=True))
        return reduce(data(*(places.get(n, i) for n, i in enumerate(at))), axis=reduced)

    shape = [1 if axis in axes else size for axis, size in enumerate(data.shape)]
    return te.compute(shape, value, name=name)


def _at_first(at: tuple[Any, ...], axes: list[int]) -> list[Any]:
    return [0 if axis in axes else index for axis, index in enumerate(at)]
