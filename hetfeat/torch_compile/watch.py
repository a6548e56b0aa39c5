"""What a graph does beside computing, seen by running it; and whether its weights have changed."""

from collections.abc import Sequence
from typing import Any

import torch

Outputs = tuple[Any, ...]


class Watched:
    """Tensors that were folded into a bundle: a change of one is noticed, cheaply, at each call.

    What is written past torch's version counters (through `tensor.data` or a NumPy view) is not.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._versions = [value._version for value in tensors]
        self._pointers = [value.data_ptr() for value in tensors]
        # Held, so that no other tensor comes to lie at the same address.
        self._storages = [value.untyped_storage() for value in tensors]

    def unchanged(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether they are the same tensors, and nobody has written to them."""
        known = zip(tensors, self._versions, self._pointers, strict=True)
        return all(v._version == version and v.data_ptr() == at for v, version, at in known)


def run_observed(
    graph: torch.fx.GraphModule, arguments: Sequence[torch.Tensor]
) -> tuple[Outputs, str]:
    """The outputs of a graph, and what it does that a compiled one would not; nothing where none.

    Args:
        graph: Graph that is run once.
        arguments: Tensors that the graph takes.
    """
    everything = [*arguments, *graph.parameters(), *graph.buffers()]
    before, random_state = [value.clone() for value in everything], torch.get_rng_state()
    outputs: Outputs = graph.forward(*arguments)
    if not torch.equal(random_state, torch.get_rng_state()):
        return outputs, "it draws random numbers, as in training mode"
    if not all(map(_same_bytes, everything, before)):
        return outputs, "it changes its inputs or weights, as in training mode"
    if not all(isinstance(value, torch.Tensor) for value in outputs):
        return outputs, "it has outputs that are no tensors"
    places = [_place(value) for value in everything]
    for value in outputs:
        if _place(value) in places:
            return outputs, "an output shares memory with an input or another output"
        places.append(_place(value))
    return outputs, ""


def _same_bytes(value: torch.Tensor, other: torch.Tensor) -> bool:
    pair = (value.detach().contiguous(), other.detach().contiguous())
    first, second = (v.flatten().view(torch.uint8) for v in pair)
    return torch.equal(first, second)


def _place(value: torch.Tensor) -> int:
    """Where its memory begins; an empty tensor shares none with another."""
    return value.untyped_storage().data_ptr() or id(value)
