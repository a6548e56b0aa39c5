"""The outputs of a network, and a network less those that nobody asked for."""

import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hetfeat.errors import RequestError
from hetfeat.workloads.network import DIGEST_DIGITS, Network


def flat(output: Any) -> Iterator[torch.Tensor]:
    """The tensors among what a module returns, in the order in which torch exports them."""
    for leaf in torch.utils._pytree.tree_leaves(output):
        if isinstance(leaf, torch.Tensor):
            yield leaf


def with_outputs(network: Network, selected: Sequence[str]) -> Network:
    """The network that returns some of its outputs, in the order asked for.

    Args:
        network: Network with all of its outputs.
        selected: Names of the outputs that it returns.

    Raises:
        RequestError: It has no such output, or one is asked for twice.
    """
    names = _all_names(network)
    odd = [name for name in selected if name not in names or list(selected).count(name) > 1]
    if odd:
        raise RequestError(
            f"--output {odd[0]} for network '{network.name}'",
            f"each once, among {', '.join(names)}",
            "correct --output, or leave it out to take all",
        )
    places = [names.index(name) for name in selected]
    if network.onnx is not None:
        _prune(network.onnx, places)
        module = network.module
    elif network.kind == "TFLite":
        from hetfeat.workloads.tflite import of_outputs

        module = of_outputs(network.module, places)
    else:
        module = Picked(network.module, places)
    digest = hashlib.sha256("\n".join(selected).encode()).hexdigest()[:DIGEST_DIGITS]
    name = f"{network.name}_{digest}"
    return dataclasses.replace(network, name=name, module=module, outputs=tuple(selected))


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


def _all_names(network: Network) -> tuple[str, ...]:
    if network.onnx is not None:
        return network.output_names(0)
    with torch.inference_mode():
        return network.output_names(len(list(flat(network.module(*network.inputs)))))


def _prune(model: Any, places: Sequence[int]) -> None:
    """Removes outputs of an ONNX model, and the nodes that they alone need."""
    graph = model.graph
    outputs = [graph.output[place] for place in places]
    del graph.output[:]
    graph.output.extend(outputs)
    needed, kept = {value.name for value in outputs}, []
    for node in reversed(graph.node):
        if needed & set(node.output):
            needed |= _read_by(node)
            kept.append(node)
    kept.reverse()
    del graph.node[:]
    graph.node.extend(kept)


def _read_by(node: Any) -> set[str]:
    """What a node reads, and what graphs in it may read of the one around them."""
    graphs = [inner for of in node.attribute for inner in (of.g, *of.graphs)]
    nodes = [inner for graph in graphs for inner in graph.node]
    passed = {value.name for graph in graphs for value in graph.output}
    return set(node.input).union(passed, *map(_read_by, nodes))
