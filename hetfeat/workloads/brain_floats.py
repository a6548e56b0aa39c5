"""bfloat16 as the upper half of float32's bits, in integers of 16 bits that every CPU moves.

TVM makes float32 of its own `bfloat16` before a schedule is compiled, and NumPy has none: a file of
parameters would need another library to be read.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import te, tirx

from hetfeat.workloads.half_types import BITS

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
