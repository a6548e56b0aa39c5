"""Operators of a quantised network in numpy: exact, or of one kind only."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hetfeat.workloads import integer_rules as rules
from hetfeat.workloads.integer_functions import FUNCTIONS, exact_mean
from hetfeat.workloads.integer_tensors import Array, InexactError, Scaled, as_real, cut_off


def _quantize(call: Any, value: Any, scale: Array, zero: Array) -> Array:
    dtype, axis = str(call.attrs.out_dtype), int(call.attrs.axis)
    dimensions = np.ndim(value.integers if isinstance(value, Scaled) else value)
    zero = rules.along(np.asarray(zero, np.int64), axis, dimensions)
    if isinstance(value, Scaled) and np.size(scale) == 1:
        size = float(np.reshape(scale, ()))
        low, high = rules.steps_range(dtype, zero, value.low / size, value.high / size)
        steps = value.integers.astype(np.float32) * rules.multiplier(value.scale, size)
    else:
        low, high = rules.steps_range(dtype, zero, -math.inf, math.inf)
        steps = as_real(value) / rules.along(scale, axis, dimensions)
    steps = np.where(steps > low, steps, low)
    steps = np.where(steps < high, steps, high)
    return (np.rint(steps).astype(np.int64) + zero).astype(dtype)


def quantize_anew(call: Any, value: Any, scale: Array, zero: Array) -> Array:
    """Quantised with a scale and a zero point that were computed from other values."""
    dtype = str(call.attrs.out_dtype)
    if np.size(scale) != 1 or np.size(zero) != 1 or dtype not in rules.QUANTISED:
        raise InexactError("quantize")
    steps = np.rint(as_real(value) / np.reshape(scale, ())) + np.float32(np.reshape(zero, ()))
    return cut_off(steps, *rules.RANGES[dtype]).astype(dtype)


def _dequantize(call: Any, value: Array, scale: Array, zero: Array) -> Scaled:
    axis, dimensions = int(call.attrs.axis), np.ndim(value)
    zero = rules.along(np.asarray(zero, np.int64), axis, dimensions)
    dtype = str(value.dtype)
    limit = max(int(np.abs(bound - zero).max()) for bound in rules.RANGES[dtype])
    scale = rules.along(np.asarray(scale, np.float64), axis, dimensions)
    return Scaled(value.astype(np.int64) - zero, scale, limit, stored=(dtype, int(zero.flat[0])))


def _scale(call: Any, data: Any, weights: Any, axis: int) -> Array:
    """The scale of each channel of a product.

    Raises:
        InexactError: It is not one of integers.
    """
    both = [value for value in (data, weights) if isinstance(value, Scaled) and value.is_factor]
    if len(both) == 2 and data.scale.size == 1 and not data.constant:
        channels = rules.per_channel(weights.scale, weights.integers.shape, axis)
        if channels is not None:
            return np.asarray(float(data.scale.reshape(())) * channels)
    raise InexactError(str(call.op.name).removeprefix("relax."))


def _conv2d(call: Any, data: Any, weights: Any) -> Any:
    if _are_integers(data, weights):
        return _convolved(call, data, weights).astype(str(call.ty.dtype))
    scale = _scale(call, data, weights, 0)
    limit = rules.largest_sum(weights.integers, 0)
    if not (weights.constant and rules.fits_int32(limit) and rules.is_usual_layout(call)):
        raise InexactError("nn.conv2d")
    integers = _convolved(call, data.integers, weights.integers)
    return Scaled(integers, scale.reshape(1, -1, 1, 1), limit, product=True)


def _are_integers(*values: Any) -> bool:
    return all(isinstance(value, np.ndarray) and value.dtype.kind in "iu" for value in values)


def _convolved(call: Any, data: Array, weights: Array) -> Array:
    top, left, bottom, right = map(int, call.attrs.padding)
    padded = np.pad(data, [(0, 0), (0, 0), (top, bottom), (left, right)])
    (dy, dx), (sy, sx) = (map(int, of) for of in (call.attrs.dilation, call.attrs.strides))
    groups = int(call.attrs.groups)
    out, deep, tall, wide = weights.shape
    spans = ((tall - 1) * dy + 1, (wide - 1) * dx + 1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=(2, 3))
    windows = windows[:, :, ::sy, ::sx, ::dy, ::dx]
    batch, _, rows, columns = windows.shape[:4]
    windows = windows.reshape(batch, groups, deep, rows, columns, tall * wide).astype(np.float64)
    filters = weights.reshape(groups, out // groups, deep, tall * wide).astype(np.float64)
    # Sums of integers below 2**53 are exact in float64, which BLAS computes.
    sums = np.einsum("bgdrct,godt->bgorc", windows, filters, optimize=True)
    whole: Array = sums.reshape(batch, out, rows, columns).astype(np.int64)
    return whole


def _matmul(call: Any, data: Any, weights: Any) -> Any:
    if _are_integers(data, weights):
        return _multiplied(data, weights).astype(str(call.ty.dtype))
    axis = np.ndim(weights.integers) - 1 if isinstance(weights, Scaled) else 0
    scale = _scale(call, data, weights, axis)
    a, b = data.integers, weights.integers
    limit = rules.largest_sum(b, axis) if weights.constant else rules.largest_dot(a.shape[-1])
    if b.ndim < 2 or a.ndim < 2 or not rules.fits_int32(limit):
        raise InexactError("matmul")
    integers = _multiplied(a, b)
    return Scaled(integers, rules.along(scale, -1, integers.ndim), limit, product=True)


def _multiplied(left: Array, right: Array) -> Array:
    return np.asarray(left.astype(np.float64) @ right.astype(np.float64)).astype(np.int64)


def _in_shape(call: Any, value: Any, *_: Any) -> Any:
    shape = [int(extent) for extent in call.ty.shape]
    return _moved(value, lambda array: np.reshape(array, shape))


def _permute_dims(call: Any, value: Any) -> Any:
    order = rules.order_of(call)
    if isinstance(value, Scaled):
        integers, scale = (np.transpose(array, order) for array in (value.integers, value.scale))
        return replace(value, integers=integers, scale=scale)
    return np.transpose(value, order)


def _moved(value: Any, move: Callable[[Array], Array]) -> Any:
    return value.moved(move) if isinstance(value, Scaled) else move(value)


def _windows(array: Array, attributes: Any, around: Any) -> Array:
    """What each element of a pooling is made of, along the last two axes."""
    top, left, bottom, right = map(int, attributes.padding)
    (tall, wide), (sy, sx), (dy, dx) = (
        map(int, of) for of in (attributes.pool_size, attributes.strides, attributes.dilation)
    )
    sides = [(0, 0), (0, 0), (top, bottom), (left, right)]
    padded = np.pad(array, sides, constant_values=around)
    spans = ((tall - 1) * dy + 1, (wide - 1) * dx + 1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=(2, 3))
    return np.asarray(windows[:, :, ::sy, ::sx, ::dy, ::dx])


def _max_pool2d(call: Any, value: Any) -> Any:
    if not rules.is_plain_pooling(call):
        raise InexactError("nn.max_pool2d")

    def pooled(array: Array) -> Array:
        least = -np.inf if array.dtype.kind == "f" else np.iinfo(array.dtype).min
        largest: Array = _windows(array, call.attrs, least).max((-2, -1))
        return largest

    if isinstance(value, Scaled) and (
        value.scale.size == 1 or (value.product and rules.is_alike_in_windows(value.scale))
    ):
        return replace(value, integers=pooled(value.integers))
    return pooled(as_real(value))


def _avg_pool2d(call: Any, value: Any) -> Any:
    count = math.prod(int(side) for side in call.attrs.pool_size)
    if not (_is_summed(value, count) and rules.is_plain_average(call)):
        raise InexactError("nn.avg_pool2d")
    sums = _windows(value.integers, call.attrs, 0).sum((-2, -1))
    scale = np.reshape(value.scale / count, (1,) * sums.ndim)
    return Scaled(sums, scale, rules.largest_count(count))


def _is_summed(value: Any, count: int) -> bool:
    """Whether as many numbers of a tensor are summed as they are stored."""
    whole = isinstance(value, Scaled) and value.is_factor and value.scale.size == 1
    return whole and rules.fits_int32(rules.largest_count(count))


def _mean(call: Any, value: Any) -> Any:
    shape, keepdims = np.shape(as_real(value)), bool(call.attrs.keepdims)
    axes = call.attrs.axis
    axes = range(len(shape)) if axes is None else axes
    places = tuple(int(axis) % len(shape) for axis in axes)
    count = math.prod(shape[place] for place in places)
    if not _is_summed(value, count):
        mean = exact_mean(as_real(value), places)
        return mean if keepdims else np.squeeze(mean, places)
    integers = value.integers.sum(places, keepdims=keepdims)
    scale = np.reshape(value.scale / count, (1,) * integers.ndim)
    return Scaled(integers, scale, rules.largest_count(count))


def _concat(call: Any, parts: tuple[Any, ...]) -> Any:
    axis = int(call.attrs.axis)
    first = parts[0]
    if all(isinstance(part, Scaled) and part.is_joinable for part in parts):
        alike = [(part.scale.tolist(), part.stored, part.low, part.high) for part in parts]
        if all(of == alike[0] for of in alike):
            return replace(first, integers=np.concatenate([p.integers for p in parts], axis))
    return np.concatenate([as_real(part) for part in parts], axis)


def _sum(call: Any, value: Any) -> Array:
    if not _are_integers(value):
        raise InexactError("sum")
    axes = call.attrs.axis
    axes = None if axes is None else tuple(int(axis) for axis in axes)
    whole: Array = value.sum(axes, dtype=value.dtype, keepdims=bool(call.attrs.keepdims))
    return whole


def _largest(operator: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(call: Any, value: Any) -> Array:
        axes = call.attrs.axis
        axes = None if axes is None else tuple(int(axis) for axis in axes)
        return np.asarray(operator(as_real(value), axis=axes, keepdims=bool(call.attrs.keepdims)))

    return reduce


def _astype(call: Any, value: Any) -> Array:
    return np.asarray(as_real(value)).astype(str(call.ty.dtype))


def _pad(call: Any, value: Any, *_: Any) -> Any:
    if str(call.attrs.pad_mode) != "constant":
        raise InexactError("nn.pad")
    sides, number = [int(side) for side in call.attrs.pad_width], float(call.attrs.pad_value)
    around = list(zip(sides[::2], sides[1::2], strict=True))
    if isinstance(value, Scaled) and value.is_of_8_bits and rules.is_pad_of_zeros(call):
        return replace(value, integers=np.pad(value.integers, around))
    return np.pad(as_real(value), around, constant_values=number)


def _repeat(call: Any, value: Any) -> Any:
    axis = call.attrs.axis
    times, axis = int(call.attrs.repeats), None if axis is None else int(axis)
    return _moved(value, lambda array: array.repeat(times, axis))


def _resize2d(call: Any, value: Any, *_: Any) -> Any:
    if (found := rules.repeats(call)) is None:
        raise InexactError("image.resize2d")
    times, (rows, columns) = found

    def repeated(array: Array) -> Array:
        return array.repeat(times, rows).repeat(times, columns)

    if isinstance(value, Scaled) and value.is_of_8_bits:
        return value.moved(repeated)
    return repeated(as_real(value))


def _limited(low: bool) -> Callable[..., Any]:
    def limit(_: Any, left: Any, right: Any) -> Any:
        for value, bound in ((left, right), (right, left)):
            if isinstance(value, Scaled) and not isinstance(bound, Scaled) and np.ndim(bound) == 0:
                number = float(bound)
                return value.cut(number, math.inf) if low else value.cut(-math.inf, number)
        left, right = as_real(left), as_real(right)
        return np.where((left > right) == low, left, right)

    return limit


def _take(call: Any, value: Any, index: Any) -> Array:
    axis = call.attrs.axis
    return np.asarray(np.take(as_real(value), index, None if axis is None else int(axis)))


def _strided_slice(call: Any, value: Any, axes: Any, begin: Any, end: Any, *rest: Any) -> Any:
    strides = rest[0] if rest and isinstance(rest[0], tuple) else (1,) * len(axes)
    places = [slice(None)] * len(call.ty.shape)
    for axis, first, last, stride in zip(axes, begin, end, strides, strict=True):
        places[int(axis)] = slice(int(first), int(last), int(stride))
    return _moved(value, lambda array: np.asarray(array[tuple(places)]))


def _split(call: Any, value: Any) -> tuple[Any, ...]:
    parts = call.attrs.indices_or_sections
    whole = isinstance(parts, int) or hasattr(parts, "value")
    places = int(parts) if whole else [int(place) for place in parts]
    if not (isinstance(value, Scaled) and value.scale.size == 1):
        return tuple(np.split(as_real(value), places, int(call.attrs.axis)))
    cut = np.split(value.integers, places, int(call.attrs.axis))
    return tuple(replace(value, integers=part) for part in cut)


def _broadcast_to(call: Any, value: Any, shape: Any) -> Array:
    return np.asarray(np.broadcast_to(as_real(value), shape))


def _relu(_: Any, value: Any) -> Any:
    return value.cut(0, math.inf) if isinstance(value, Scaled) else cut_off(value, 0, math.inf)


def _leaky_relu(call: Any, value: Any) -> Array:
    value = as_real(value)
    return np.asarray(np.where(value > 0, value, value * np.float32(call.attrs.alpha)))


def _clip(_: Any, value: Any, low: float, high: float) -> Any:
    if isinstance(value, Scaled):
        return value.cut(low, high)
    return cut_off(value, low, high).astype(value.dtype)


def _elementwise(operator: Callable[..., Array]) -> Callable[..., Any]:
    def apply(_: Any, *values: Any) -> Array:
        return np.asarray(operator(*map(as_real, values)))

    return apply


MOVES = ("expand_dims", "flatten", "repeat", "reshape", "squeeze", "strided_slice")
"""Operators that give elements, or some of them, other places."""
BOUNDS = ("maximum", "minimum")
OPERATORS: dict[str, Callable[..., Any]] = {
    **FUNCTIONS,
    "abs": _elementwise(np.abs),
    "add": _elementwise(np.add),
    "astype": _astype,
    "broadcast_to": _broadcast_to,
    "clip": _clip,
    "concat": _concat,
    "dequantize": _dequantize,
    "divide": _elementwise(np.divide),
    "equal": _elementwise(np.equal),
    "expand_dims": _in_shape,
    "flatten": _in_shape,
    "floor": _elementwise(np.floor),
    "matmul": _matmul,
    "image.resize2d": _resize2d,
    "isnan": _elementwise(np.isnan),
    "max": _largest(np.max),
    "maximum": _limited(low=True),
    "mean": _mean,
    "min": _largest(np.min),
    "minimum": _limited(low=False),
    "multiply": _elementwise(np.multiply),
    "negative": _elementwise(np.negative),
    "nn.avg_pool2d": _avg_pool2d,
    "nn.conv2d": _conv2d,
    "nn.leakyrelu": _leaky_relu,
    "nn.max_pool2d": _max_pool2d,
    "nn.pad": _pad,
    "nn.relu": _relu,
    "permute_dims": _permute_dims,
    "quantize": _quantize,
    "repeat": _repeat,
    "reshape": _in_shape,
    "round": _elementwise(np.rint),
    "split": _split,
    "squeeze": _in_shape,
    "strided_slice": _strided_slice,
    "subtract": _elementwise(np.subtract),
    "sum": _sum,
    "take": _take,
    "where": _elementwise(np.where),
}
"""What is computed here, by Relax's names without their first part."""
