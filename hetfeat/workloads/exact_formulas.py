"""Functions of float32 as formulas that numpy and every CPU compute to the same bits.

Only operations that IEEE 754 rounds in one way are used, each rounded for itself. A sum of many
numbers is one of integers, whose order does not matter: the numbers are counted in steps of a power
of two, or of a share of the largest of them.
"""

import math
from collections.abc import Callable
from typing import Any, Protocol


class Arithmetic(Protocol):
    """What formulas are computed with; `+`, `-` and `/` are those of the numbers."""

    def product(self, left: Any, right: Any) -> Any:
        """A product that is rounded before anything is added to it."""

    def most(self, value: Any, low: float) -> Any:
        """The value, or a least one."""

    def least(self, value: Any, high: float) -> Any:
        """The value, or a largest one."""

    def floor(self, value: Any) -> Any:
        """The whole number below."""

    def rint(self, value: Any) -> Any:
        """The nearest whole number, the even one of two."""

    def sqrt(self, value: Any) -> Any:
        """The square root."""

    def magnitude(self, value: Any) -> Any:
        """The value without its sign."""

    def power_of_two(self, exponent: Any) -> Any:
        """Two to the power of a whole number from -126 to 127."""


_LN2 = (0.693359375, -2.12194440e-4)
"""The logarithm of 2, whose first part has few bits: its products with whole numbers are exact."""
_EXP: tuple[float, ...] = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3)
_EXP += (4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
"""Coefficients of Cephes' expf (S. Moshier), the highest first."""
_ERF: tuple[float, ...] = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06)
_ERF += (-5.69250639462346e-05, -7.34990630326855e-04, -2.95459980854025e-03)
_ERF += (-1.60960333262415e-02,)
_ERF_BELOW: tuple[float, ...] = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
)
_ERF_BELOW += (-7.37332916720468e-03, -1.42647390514189e-02)
_TANH: tuple[float, ...] = (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11)
_TANH += (5.12229709037114e-08, 1.48572235717979e-05, 6.37261928875436e-04)
_TANH += (4.89352455891786e-03,)
_TANH_BELOW: tuple[float, ...] = (1.19825839466702e-06, 1.18534705686654e-04)
_TANH_BELOW += (2.26843463243900e-03, 4.89352518554385e-03)
"""Coefficients of Eigen's rational functions, of squares, the highest first."""


def exponential(of: Arithmetic, x: Any) -> Any:
    """Euler's number to the power of x, from -87 to 88; beyond it is that of the bound."""
    x = of.least(of.most(x, -87.0), 88.0)
    whole = of.floor(of.product(x, math.log2(math.e)) + 0.5)
    rest = x - of.product(whole, _LN2[0]) - of.product(whole, _LN2[1])
    square = of.product(rest, rest)
    value = of.product(_polynomial(of, rest, _EXP), square) + rest + 1.0
    return of.product(value, of.power_of_two(whole))


def erf(of: Arithmetic, x: Any) -> Any:
    """The error function."""
    return _rational(of, of.least(of.most(x, -4.0), 4.0), _ERF, _ERF_BELOW)


def tanh(of: Arithmetic, x: Any) -> Any:
    """The hyperbolic tangent."""
    return _rational(of, of.least(of.most(x, -9.0), 9.0), _TANH, _TANH_BELOW)


def sigmoid(of: Arithmetic, x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return 1.0 / (exponential(of, of.product(x, -1.0)) + 1.0)


def silu(of: Arithmetic, x: Any) -> Any:
    """X * sigmoid(x)."""
    return of.product(x, sigmoid(of, x))


def gelu(of: Arithmetic, x: Any) -> Any:
    """X * (1 + erf(x / sqrt(2))) / 2."""
    share = erf(of, of.product(x, math.sqrt(0.5)))
    return of.product(x, of.product(share, 0.5) + 0.5)


def rsqrt(of: Arithmetic, x: Any) -> Any:
    """1 / sqrt(x)."""
    return 1.0 / of.sqrt(x)


ELEMENTWISE: dict[str, Callable[[Arithmetic, Any], Any]] = {
    "erf": erf,
    "exp": exponential,
    "nn.gelu": gelu,
    "nn.silu": silu,
    "rsqrt": rsqrt,
    "sigmoid": sigmoid,
    "tanh": tanh,
}
"""Formulas of one number, by Relax's names without their first part."""


def counted_bits(count: int) -> int:
    """Bits that each of as many integers may have for their sum to fit 31; at most a float32's."""
    return min(23, 30 - (count - 1).bit_length())


def counted(of: Arithmetic, value: Any, count: int) -> Any:
    """A number from 0 to 1 as a whole number of steps, of which as many are summed."""
    return of.rint(of.product(value, 2.0 ** counted_bits(count)))


def softmax_share(of: Arithmetic, x: Any, highest: Any, count: int) -> Any:
    """What a softmax divides by the sum of all: a whole number."""
    return counted(of, exponential(of, x - highest), count)


def step_of(of: Arithmetic, largest: Any, count: int) -> Any:
    """The step in which numbers up to the largest one are counted, of which as many are summed."""
    return of.most(of.product(largest, 2.0 ** -counted_bits(count)), 2.0**-100)


def in_steps(of: Arithmetic, x: Any, step: Any) -> Any:
    """A number in whole steps."""
    return of.rint(x / step)


def mean_of(of: Arithmetic, total: Any, step: Any, count: int) -> Any:
    """The mean of numbers, by the sum of their steps in float32."""
    return of.product(total, of.product(step, 1.0 / count))


def normalised(of: Arithmetic, deviation: Any, variance: Any, epsilon: float) -> Any:
    """A deviation from the mean, over its standard deviation."""
    return deviation / of.sqrt(variance + epsilon)


def _polynomial(of: Arithmetic, x: Any, coefficients: tuple[float, ...]) -> Any:
    value = of.product(x, coefficients[0]) + coefficients[1]
    for coefficient in coefficients[2:]:
        value = of.product(value, x) + coefficient
    return value


def _rational(of: Arithmetic, x: Any, above: tuple[float, ...], below: tuple[float, ...]) -> Any:
    square = of.product(x, x)
    odd = of.product(x, _polynomial(of, square, above))
    return odd / _polynomial(of, square, below)
