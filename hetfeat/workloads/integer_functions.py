"""Functions of float32 of a quantised network in numpy, by formulas that every CPU rounds alike."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hetfeat.workloads import exact_formulas as formulas
from hetfeat.workloads.integer_tensors import Array, InexactError, as_real


class _Numpy:
    """Each operation on arrays of float32, rounded to float32."""

    def product(self, left: Any, right: Any) -> Any:
        return left * right

    def most(self, value: Any, low: float) -> Any:
        return np.where(value > low, value, np.float32(low))

    def least(self, value: Any, high: float) -> Any:
        return np.where(value < high, value, np.float32(high))

    def floor(self, value: Any) -> Any:
        return np.floor(value)

    def rint(self, value: Any) -> Any:
        return np.rint(value)

    def sqrt(self, value: Any) -> Any:
        return np.sqrt(value)

    def magnitude(self, value: Any) -> Any:
        return np.abs(value)

    def power_of_two(self, exponent: Any) -> Any:
        return np.ldexp(np.float32(1), np.asarray(exponent).astype(np.int32))


OF_NUMPY = _Numpy()


def _elementwise(formula: Callable[..., Any]) -> Callable[..., Any]:
    def apply(_: Any, value: Any) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(formula(OF_NUMPY, _float32(as_real(value))))

    return apply


def _float32(value: Any) -> Array:
    array = np.asarray(value)
    if array.dtype != np.float32:
        raise InexactError(f"a function of {array.dtype}")
    return array


def _softmax(call: Any, value: Any) -> Array:
    x, axis = _float32(as_real(value)), int(call.attrs.axis)
    with np.errstate(all="ignore"):
        highest = x.max(axis, keepdims=True)
        shares = formulas.softmax_share(OF_NUMPY, x, highest, x.shape[axis])
        total = shares.sum(axis, dtype=np.float64, keepdims=True)
        return np.asarray(shares / total.astype(np.float32))


def _layer_norm(call: Any, value: Any, gamma: Any, beta: Any) -> Array:
    x, of = _float32(as_real(value)), OF_NUMPY
    axes = tuple(int(axis) % x.ndim for axis in call.attrs.axes)
    gamma, beta = (_beside(_float32(as_real(part)), axes, x.ndim) for part in (gamma, beta))
    with np.errstate(all="ignore"):
        deviation = x - exact_mean(x, axes)
        variance = exact_mean(of.product(deviation, deviation), axes)
        whole = formulas.normalised(of, deviation, variance, float(call.attrs.epsilon))
        return np.asarray(of.product(whole, gamma) + beta)


def _beside(vector: Array, axes: tuple[int, ...], dimensions: int) -> Array:
    shape = [1] * dimensions
    for axis, size in zip(axes, vector.shape, strict=True):
        shape[axis] = size
    return vector.reshape(shape)


def exact_mean(x: Array, axes: tuple[int, ...]) -> Array:
    """The mean over axes, which stay."""
    if x.dtype != np.float32:
        raise InexactError(f"a mean of {x.dtype}")
    count = math.prod(x.shape[axis] for axis in axes)
    largest = OF_NUMPY.magnitude(x).max(axes, keepdims=True)
    step = formulas.step_of(OF_NUMPY, largest, count)
    steps = formulas.in_steps(OF_NUMPY, x, step)
    # Whole numbers, whose sum is below 2**53: exact in whatever order.
    total = steps.sum(axes, dtype=np.float64, keepdims=True).astype(np.float32)
    return np.asarray(formulas.mean_of(OF_NUMPY, total, step, count))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _elementwise(formula) for name, formula in formulas.ELEMENTWISE.items()},
    "nn.layer_norm": _layer_norm,
    "nn.softmax": _softmax,
    "sqrt": _elementwise(lambda of, x: of.sqrt(x)),
}
"""What is computed here, by Relax's names without their first part."""
