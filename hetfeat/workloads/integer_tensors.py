"""A quantised tensor while it is computed: integers, and what makes numbers of them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hetfeat.workloads import integer_rules as rules

Array = npt.NDArray[Any]


class InexactError(Exception):
    """An operator whose float32 result depends on how it is computed."""


@dataclass(frozen=True)
class Scaled:
    """Integers times a scale, then cut off.

    Attributes:
        integers: Array int64, the zero point subtracted; in a graph, an expression.
        scale: Array float64 of as many dimensions, which broadcasts with it.
        limit: Largest absolute value that an integer may have.
        low: Least real number, default none.
        high: Largest real number, default none.
        product: Whether it is a sum of products, default False.
        constant: Whether it is the same for all inputs, default False.
        stored: Type and zero point that it is stored with, default unknown.
    """

    integers: Any
    scale: Array
    limit: int
    low: float = -math.inf
    high: float = math.inf
    product: bool = False
    constant: bool = False
    stored: tuple[str, int] = ("", 0)

    @property
    def is_factor(self) -> bool:
        """Whether a product in integers can be made of it."""
        return self.limit <= rules.NARROW and not self.product and not self.is_cut

    @property
    def is_joinable(self) -> bool:
        """Whether others of the same scale may be put beside it as they are stored."""
        is_plain = self.limit <= rules.NARROW and not self.product and not self.constant
        return is_plain and self.scale.size == 1

    @property
    def is_of_8_bits(self) -> bool:
        """Whether it is as it is stored, with one scale."""
        return self.is_factor and self.scale.size == 1

    @property
    def is_cut(self) -> bool:
        """Whether the real numbers are cut off."""
        return self.low > -math.inf or self.high < math.inf

    def real(self) -> Array:
        """The numbers, float32."""
        value = self.integers.astype(np.float32) * self.scale.astype(np.float32)
        return cut_off(value, self.low, self.high)

    def cut(self, low: float, high: float) -> "Scaled":
        """The same, cut off once more."""
        low, high = min(max(self.low, low), high), min(max(self.high, low), high)
        return replace(self, low=low, high=high)

    def moved(self, move: Callable[[Array], Array]) -> "Scaled":
        """The elements in other places."""
        if self.scale.size == 1:
            integers = move(self.integers)
            return replace(self, integers=integers, scale=self.scale.reshape((1,) * integers.ndim))
        scale = np.broadcast_to(self.scale, self.integers.shape)
        return replace(self, integers=move(self.integers), scale=move(scale))


def as_real(value: Any) -> Any:
    """The numbers of a tensor, which may be integers and a scale."""
    return value.real() if isinstance(value, Scaled) else value


def cut_off(value: Array, low: Any, high: Any) -> Array:
    """Cut off as compiled code does it: a value that is no number becomes the least."""
    low, high = np.float32(low), np.float32(high)
    value = np.where(value > low, value, low)
    return np.where(value < high, value, high)
