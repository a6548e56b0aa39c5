"""Winograd convolution, F(m, 3): fewer multiplications for 3x3 convolutions of stride 1.

Of an output tile of m x m, direct convolution takes 9 m^2 multiplications a channel pair, this
(m + 2)^2: 2.25 times fewer for m = 2, 4 times fewer for m = 4. The matrices are those of Lavin and
Gray 2015 (arXiv 1509.09308); m = 4 loses about two decimal digits in fp32.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Convolution = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Shapes of a convolution's input, NHWC, of its weights, HWIO, and of its output, which strides and
padding decide."""
Choose = Callable[[Convolution], int | None]
"""Callable that gives the side of an output tile for a convolution, or None to compute it
directly."""


def direct(convolution: Convolution) -> int | None:
    """Chooses none."""
    return None


@dataclass(frozen=True)
class Transforms:
    """Y = A^T [(G g G^T) * (B^T d B)] A, for a filter g [3, 3] and an input tile d [m+2, m+2].

    Attributes:
        inputs: Matrix B^T, float64 [m+2, m+2].
        filters: Matrix G, float64 [m+2, 3].
        outputs: Matrix A^T, float64 [m, m+2].
    """

    inputs: Matrix
    filters: Matrix
    outputs: Matrix


TRANSFORMS = {
    2: Transforms(
        np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], float),
        np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
        np.array([[1, 1, 1, 0], [0, 1, -1, -1]], float),
    ),
    4: Transforms(
        np.array(
            [
                [4, 0, -5, 0, 1, 0],
                [0, -4, -4, 1, 1, 0],
                [0, 4, -4, -1, 1, 0],
                [0, -2, -1, 2, 1, 0],
                [0, 2, -1, -2, 1, 0],
                [0, 4, 0, -5, 0, 1],
            ],
            float,
        ),
        np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24,
        np.array(
            [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
            float,
        ),
    ),
}
"""Transforms by m, the side of an output tile."""


def transformed_filters(weights: npt.NDArray[np.float32], tile: int) -> npt.NDArray[np.float32]:
    """Filters in the transformed domain, computed in float64 and rounded once.

    Args:
        weights: Filters, float32 [3, 3, channels in, channels out].
        tile: Side m of an output tile, one of `TRANSFORMS`.

    Returns:
        The filters, float32 [m+2, m+2, channels in, channels out].
    """
    matrix = TRANSFORMS[tile].filters
    exact: Matrix = np.einsum("ah,bw,hwio->abio", matrix, matrix, weights.astype(np.float64))
    return exact.astype(np.float32)
