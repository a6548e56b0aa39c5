"""bfloat16 as the upper half of float32's bits, in integers of 16 bits that every CPU moves.

TVM makes float32 of its own `bfloat16` before a schedule is compiled, and NumPy has none: a file of
parameters would need another library to be read.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import te, tirx, topi

BITS = "uint16"
"""Type of the integers."""
NOT_A_NUMBER = 0x7FC0
"""The bits of bfloat16 that are no number."""


def narrowed(array: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Numbers as the bits of the nearest bfloat16, halves to even.

    >>> import numpy as np
    >>> [hex(bits) for bits in narrowed(np.float32([1, -2.5, 1.00390625]))]
    ['0x3f80', '0xc020', '0x3f80']
    """
    bits = array.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(array), NOT_A_NUMBER, rounded).astype(np.uint16)


def narrow(data: te.Tensor) -> te.Tensor:
    """As `narrowed`, of a tensor of float32."""

    def half(*at: Any) -> Any:
        value = data(*at)
        bits = tirx.reinterpret("uint32", value)
        odd = (bits >> tirx.const(16, "uint32")) & tirx.const(1, "uint32")
        rounded = (bits + tirx.const(0x7FFF, "uint32") + odd) >> tirx.const(16, "uint32")
        nan = tirx.const(NOT_A_NUMBER, BITS)
        return tirx.Select(tirx.isnan(value), nan, tirx.Cast(BITS, rounded))

    return te.compute(data.shape, half, name="narrow")


def wide(bits: Any) -> Any:
    """The float32 of bits of bfloat16."""
    return tirx.reinterpret("float32", tirx.Cast("uint32", bits) << tirx.const(16, "uint32"))


def widen(data: te.Tensor) -> te.Tensor:
    """A tensor of bits of bfloat16 as float32."""
    return te.compute(data.shape, lambda *at: wide(data(*at)), name="widen")


def product(data: te.Tensor, weights: te.Tensor, rows: int) -> te.Tensor:
    """`data` [..., rows, depth] times `weights` [depth, columns], sums in float32.

    Args:
        data: Tensor of bits.
        weights: Matrix of bits.
        rows: Number of rows to compute, at least as many as there are.
    """
    *many, there, depth = (int(extent) for extent in data.shape)
    k = te.reduce_axis((0, depth), "k")
    if rows > there:
        data = topi.nn.pad(
            data, [0] * (len(many) + 2), [*[0] * len(many), rows - there, 0], 0, name="pad_temp"
        )
    columns = int(weights.shape[1])
    whole = te.compute(
        (*many, rows, columns),
        lambda *at: te.sum(wide(data(*at[:-1], k)) * wide(weights(k, at[-1])), axis=k),
        name="matmul",
    )
    if rows == there:
        return whole
    return te.compute((*many, there, columns), lambda *at: whole(*at), name="matmul_rows")


def convolution(
    data: te.Tensor,
    weights: te.Tensor,
    pixels: int,
    *,
    strides: list[int],
    padding: list[int],
    dilation: list[int],
) -> te.Tensor:
    """A convolution of images [image, row, pixel, channel], sums in float32.

    Args:
        data: Tensor of bits.
        weights: Bits [row, pixel, channel, output channel].
        pixels: Pixels of a row to compute, at least as many as there are.
        strides: Steps of the window, down and to the right.
        padding: Zeros around an image: above, left, below, right.
        dilation: Steps within the window.
    """
    above, left, below, right = padding
    tall, span, depth, channels = (int(extent) for extent in weights.shape)
    images, high, across, _ = (int(extent) for extent in data.shape)
    window = ((tall - 1) * dilation[0] + 1, (span - 1) * dilation[1] + 1)
    rows = (high + above + below - window[0]) // strides[0] + 1
    stored = (across + left + right - window[1]) // strides[1] + 1
    right += max(0, (pixels - 1) * strides[1] + window[1] - across - left - right)
    if above or left or below or right:
        data = topi.nn.pad(data, [0, above, left, 0], [0, below, right, 0], 0, name="pad_temp")
    ky, kx, kc = (te.reduce_axis((0, extent)) for extent in (tall, span, depth))

    def factors(n: Any, y: Any, x: Any, c: Any) -> Any:
        row, pixel = y * strides[0] + ky * dilation[0], x * strides[1] + kx * dilation[1]
        return wide(data(n, row, pixel, kc)) * wide(weights(ky, kx, kc, c))

    whole = te.compute(
        (images, rows, pixels, channels),
        lambda *at: te.sum(factors(*at), axis=[ky, kx, kc]),
        name="conv2d_nhwc",
    )
    if pixels == stored:
        return whole
    shape = (images, rows, stored, channels)
    return te.compute(shape, lambda *at: whole(*at), name="conv2d_rows")
