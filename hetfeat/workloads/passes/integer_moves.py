"""Quantised tensors whose elements only change places: it is their integers that are moved.

Each function takes the builder of a graph, a tensor and the call that moves it. It returns what is
moved, or None where that has to be done in float32.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from hetfeat.workloads import integer_rules as rules
from hetfeat.workloads.integer_operators import MOVES
from hetfeat.workloads.passes.integer_graph import GraphTensor, pooled, with_number


def move(builder: Any, tensor: GraphTensor, call: Any) -> GraphTensor | None:
    """Elements in other places, or some of them, where one scale is that of all."""
    if (whole := _of_one_scale(builder, tensor)) is None:
        return None
    moved = builder.emit(relax.Call(call.op, [whole.integers, *call.args[1:]], call.attrs))
    ones = (1,) * len(moved.ty.shape)
    scale, offset = (array.reshape(ones) for array in (whole.scale, whole.offset))
    return replace(whole, integers=moved, scale=scale, offset=offset)


def split(builder: Any, tensor: GraphTensor, call: Any) -> list[GraphTensor] | None:
    """Parts of a tensor along an axis."""
    if (whole := _of_one_scale(builder, tensor)) is None:
        return None
    parts = builder.emit(relax.Call(call.op, [whole.integers], call.attrs))
    places = [relax.TupleGetItem(parts, place) for place in range(len(call.ty.fields))]
    return [replace(whole, integers=builder.emit(place)) for place in places]


def pad(builder: Any, tensor: GraphTensor, call: Any) -> GraphTensor | None:
    """Zero points around a tensor of 8 bits."""
    if not (tensor.is_of_8_bits and rules.is_pad_of_zeros(call)):
        return None
    zero = -int(tensor.offset.reshape(()))
    around = [int(side) for side in call.attrs.pad_width]
    padded = relax.op.nn.pad(tensor.integers, around, pad_value=zero)
    return replace(tensor, integers=builder.emit(padded))


def resize(builder: Any, tensor: GraphTensor, call: Any) -> GraphTensor | None:
    """Each row and column of a tensor of 8 bits several times."""
    found = rules.repeats(call)
    if found is None or not tensor.is_of_8_bits:
        return None
    integers, (times, axes) = tensor.integers, found
    for axis in axes:
        integers = builder.emit(relax.op.repeat(integers, times, axis))
    return replace(tensor, integers=integers)


def permute(builder: Any, tensor: GraphTensor, call: Any) -> GraphTensor:
    """Elements in other places, and what is said of each channel with them."""
    integers = pooled(builder, tensor.integers, tensor.pools)
    moved = builder.emit(relax.Call(call.op, [integers], call.attrs))
    ones = (1,) * len(moved.ty.shape)
    scale, offset = (
        array.reshape(ones) if array.size == 1 else array.transpose(rules.order_of(call))
        for array in (tensor.scale, tensor.offset)
    )
    return replace(tensor, integers=moved, scale=scale, offset=offset, pools=())


MOVERS = {
    "image.resize2d": resize,
    "nn.pad": pad,
    "permute_dims": permute,
    "split": split,
    **dict.fromkeys(MOVES, move),
}
"""What moves the elements of a tensor, by Relax's names without their first part."""


def _of_one_scale(builder: Any, tensor: GraphTensor) -> GraphTensor | None:
    """A tensor with one scale and one offset, pooled already."""
    if tensor.scale.size > 1:
        return None
    tensor = replace(tensor, integers=pooled(builder, tensor.integers, tensor.pools), pools=())
    if tensor.offset.size == 1:
        return tensor
    # A bias would have to be moved, too.
    bias = tensor.offset.astype(np.int32)
    sums = with_number(builder, relax.op.add, tensor.integers, bias)
    return replace(tensor, integers=sums, offset=np.zeros((1,) * tensor.scale.ndim, np.int64))
