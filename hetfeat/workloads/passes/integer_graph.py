"""Quantised tensors of a graph: expressions of integers, and what makes numbers of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax

from hetfeat.workloads import integer_rules as rules
from hetfeat.workloads.integer_tensors import Array, Scaled


@dataclass(frozen=True)
class GraphTensor(Scaled):
    """A tensor of the graph.

    Attributes:
        offset: Array int64 that is added to the integers: less the zero point, or a bias.
        pools: Calls of maximum poolings that are yet to be computed, by default none. They commute
            with scales, offsets, bounds and rounding: 8 bits are pooled, not 32.
    """

    offset: Array = field(default_factory=lambda: np.zeros(1, np.int64))
    pools: tuple[Any, ...] = ()

    @property
    def dtype(self) -> str:
        """The type that the integers are stored in."""
        return str(self.integers.ty.dtype)

    def alike(self, other: "GraphTensor") -> bool:
        """Whether equal integers of both are equal numbers."""
        pairs = [(t.dtype, t.low, t.high, t.scale.item(), t.offset.item()) for t in (self, other)]
        return pairs[0] == pairs[1]


def averaged(tensor: GraphTensor, sums: Any, count: int) -> GraphTensor:
    """Sums of as many of a tensor's integers, as their averages."""
    ones = (1,) * len(sums.ty.shape)
    scale, offset = tensor.scale / count, tensor.offset * count
    limit = rules.largest_count(count)
    return GraphTensor(sums, scale.reshape(ones), limit, offset=offset.reshape(ones))


def pooled(builder: Any, value: Any, pools: Sequence[Any]) -> Any:
    """A value after the maximum poolings of some calls."""
    for call in pools:
        value = builder.emit(relax.Call(call.op, [value], call.attrs))
    return value


def with_number(
    builder: Any, operator: Callable[[Any, Any], Any], value: Any, number: Array
) -> Any:
    """What an operator makes of a value and a constant that broadcasts with it."""
    if number.size == 1:  # no scalar: that would be code, and each layer a kernel of its own
        number = number.reshape((1,) * len(value.ty.shape))
    return builder.emit(operator(value, relax.const(number)))


def stored(weights: Array) -> Any:
    """Weights less their zero points, in the fewest bits that hold them."""
    narrow = weights.min(initial=0) >= -128 and weights.max(initial=0) <= 127
    return relax.const(np.ascontiguousarray(weights.astype(np.int8 if narrow else np.int16)))
