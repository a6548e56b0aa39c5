"""What of a quantised network is made of integers, and with which numbers: one set of rules.

They depend on the graph alone, never on a CPU or a time.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

RANGES = {"uint8": (0, 255), "int8": (-128, 127), "int32": (-(2**31), 2**31 - 1)}
"""Least and largest value of each type that quantised tensors and biases have."""
QUANTISED = ("uint8", "int8")
"""Types that a tensor is quantised to."""
NARROW = 255
"""Largest absolute value of an integer of 8 bits less its zero point."""
LARGEST_INT32 = 2**31 - 1
REPEATING = (
    ("asymmetric", "floor"),
    ("half_pixel", "round_prefer_ceil"),
    ("half_pixel", "round_prefer_floor"),
    ("pytorch_half_pixel", "round_prefer_floor"),
    ("tf_half_pixel_for_nn", "floor"),
)
"""How nearest neighbours are found where a resizing to a multiple repeats rows and columns."""


def largest_sum(weights: Array, axis: int) -> int:
    """Bound of all partial sums of a product with weights, and of what its zero point adds.

    Args:
        weights: Integers of the weights, their zero point subtracted.
        axis: Axis of the output's channels.
    """
    summed = tuple(place for place in range(weights.ndim) if place != axis)
    per_output = np.abs(weights.astype(np.int64)).sum(summed)
    return 2 * NARROW * int(per_output.max(initial=0))


def largest_dot(depth: int) -> int:
    """Bound of the sums of a product of two quantised tensors, both less their zero points."""
    return NARROW * NARROW * depth


def fits_int32(limit: float) -> bool:
    """Whether sums of at most this absolute value are right in 32 bits."""
    return limit <= LARGEST_INT32


def multiplier(scale: Array, output_scale: float) -> Array:
    """What a sum is multiplied by when it is quantised, float32: rounded once."""
    return np.asarray(scale / np.float64(output_scale)).astype(np.float32)


def bias_steps(bias: Array, scale: Array) -> Array:
    """A bias in steps of a product's scale, float64 whole numbers."""
    return np.rint(bias / scale)


def per_channel(scale: Array, shape: tuple[int, ...], axis: int) -> Array | None:
    """A scale for each index of an axis; None where it varies along others."""
    whole = np.broadcast_to(scale, shape)
    moved = np.moveaxis(whole, axis, 0).reshape(shape[axis], -1)
    if moved.size == 0 or (moved != moved[:, :1]).any():
        return None
    return np.ascontiguousarray(moved[:, 0])


def largest_count(count: int) -> int:
    """Bound of the sum of as many integers of 8 bits, less their zero points or not."""
    return NARROW * count


def order_of(permutation: Any) -> list[int] | None:
    """The axes of `permute_dims`; None for all in reverse."""
    axes = permutation.attrs.axes
    return None if axes is None else [int(axis) for axis in axes]


def is_usual_layout(convolution: Any) -> bool:
    """Whether a convolution is laid out as importers do it."""
    attributes = convolution.attrs
    return (str(attributes.data_layout), str(attributes.kernel_layout)) == ("NCHW", "OIHW")


def is_pad_of_zeros(pad: Any) -> bool:
    """Whether the number around a tensor is zero, which each zero point stands for."""
    return str(pad.attrs.pad_mode) == "constant" and float(pad.attrs.pad_value) == 0


def repeats(resize: Any) -> tuple[int, tuple[int, int]] | None:
    """How often a resizing repeats rows and columns, and their axes; None where it does more.

    2, 4 and 8 alone: places that are counted in float32 are exact for them.
    """
    attributes, layout = resize.attrs, str(resize.attrs.layout)
    how = (str(attributes.coordinate_transformation_mode), str(attributes.rounding_method))
    if str(attributes.method) != "nearest_neighbor" or how not in REPEATING:
        return None
    axes = (layout.index("H"), layout.index("W"))
    sides = [(int(resize.ty.shape[axis]), int(resize.args[0].ty.shape[axis])) for axis in axes]
    for times in (2, 4, 8):
        if all(to == times * of for to, of in sides):
            return times, axes
    return None


def is_plain_pooling(call: Any) -> bool:
    """Whether a pooling is laid out as importers do it, and its windows are all whole."""
    return not call.attrs.ceil_mode and str(call.attrs.layout) == "NCHW"


def is_alike_in_windows(scale: Array) -> bool:
    """Whether all elements of a window have one scale, which a maximum then commutes with."""
    return scale.ndim == 4 and scale.shape[2:] == (1, 1)


def is_plain_average(call: Any) -> bool:
    """Whether all windows of an average have the same number of elements, padding included."""
    pads = any(int(side) for side in call.attrs.padding)
    return is_plain_pooling(call) and (bool(call.attrs.count_include_pad) or not pads)


def along(vector: Array, axis: int, dimensions: int) -> Array:
    """A scale or zero point of a tensor, or of each index of an axis, as it broadcasts."""
    shape = [1] * dimensions
    if np.size(vector) > 1:
        shape[axis] = np.size(vector)
    return np.reshape(vector, shape)


def steps_range(
    dtype: str, zero: Array, low: float, high: float
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Least and largest value, before its zero point is added, of what is quantised.

    Args:
        dtype: Type that it becomes.
        zero: Zero point.
        low: Where it is cut off below, in steps of its scale.
        high: Where it is cut off above, in steps of its scale.
    """
    least, most = ((bound - zero).astype(np.float32) for bound in RANGES[dtype])
    inner = np.float32(low), np.float32(high)
    return np.clip(least, *inner), np.clip(most, *inner)
