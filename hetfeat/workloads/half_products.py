"""Products of factors in half precision, or of weights in half and data in float32.

Sums are float32. What is stored in half becomes float32 as it is read.
"""

from collections.abc import Callable
from typing import Any

from tvm import te, tirx, topi

from hetfeat.workloads.brain_floats import wide
from hetfeat.workloads.half_types import BITS


def product(data: te.Tensor, weights: te.Tensor, rows: int, *, copies: bool) -> te.Tensor:
    """`data` [..., rows, depth] times `weights` [depth, columns], sums in float32.

    Args:
        data: Tensor of float32, float16 or bits of bfloat16.
        weights: Matrix of float16 or bits of bfloat16.
        rows: Number of rows to compute, at least as many as there are.
        copies: Whether those that are not there are zeros, for which `data` is copied, or the last
            one read again.
    """
    *many, there, depth = (int(extent) for extent in data.shape)
    k = te.reduce_axis((0, depth), "k")
    if rows > there and copies:
        data = topi.nn.pad(
            data, [0] * (len(many) + 2), [*[0] * len(many), rows - there, 0], 0, name="pad_temp"
        )
    columns = int(weights.shape[1])
    of_data, of_weights = _factors(data), _factors(weights)

    def row(at: Any) -> Any:
        return at if copies or rows == there else te.min(at, there - 1)

    whole = te.compute(
        (*many, rows, columns),
        lambda *at: te.sum(of_data(*at[:-2], row(at[-2]), k) * of_weights(k, at[-1]), axis=k),
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
        data: Tensor of float32, float16 or bits of bfloat16.
        weights: The same in half, [row, pixel, channel, output channel].
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
    of_data, of_weights = _factors(data), _factors(weights)

    def factors(n: Any, y: Any, x: Any, c: Any) -> Any:
        row, pixel = y * strides[0] + ky * dilation[0], x * strides[1] + kx * dilation[1]
        return of_data(n, row, pixel, kc) * of_weights(ky, kx, kc, c)

    whole = te.compute(
        (images, rows, pixels, channels),
        lambda *at: te.sum(factors(*at), axis=[ky, kx, kc]),
        name="conv2d_nhwc",
    )
    if pixels == stored:
        return whole
    shape = (images, rows, stored, channels)
    return te.compute(shape, lambda *at: whole(*at), name="conv2d_rows")


def _factors(tensor: te.Tensor) -> Callable[..., Any]:
    """A tensor's elements as float32."""
    dtype = str(tensor.dtype)

    def factor(*at: Any) -> Any:
        number = tensor(*at)
        if dtype == "float32":
            return number
        return wide(number) if dtype == BITS else tirx.Cast("float32", number)

    return factor
