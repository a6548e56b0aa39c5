"""The tensors that a module of torch returns, flat."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch


def flat(output: Any) -> Iterator[torch.Tensor]:
    """The tensors among what a module returns, in the order in which torch exports them."""
    for leaf in torch.utils._pytree.tree_leaves(output):
        if isinstance(leaf, torch.Tensor):
            yield leaf


class Picked(torch.nn.Module):
    """A module that returns a flat tuple: some of another's tensors, and nothing that is none.

    Args:
        module: Module with all of its outputs.
        places: Indices of its tensors that are returned; default None for all.
    """

    def __init__(self, module: torch.nn.Module, places: Sequence[int] | None = None) -> None:
        super().__init__()
        self.module = module

        @functools.wraps(module.forward)  # its parameters' names tell what they are
        def forward(*inputs: Any, **named: Any) -> tuple[torch.Tensor, ...]:
            tensors = tuple(flat(module(*inputs, **named)))
            return tensors if places is None else tuple(tensors[place] for place in places)

        self.forward = forward
