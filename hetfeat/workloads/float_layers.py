"""Layers of a quantised network that go back to float32."""

from collections.abc import Collection
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

PRODUCTS = ("Conv", "Gemm", "MatMul")


def quantised_products(made: "onnx.ModelProto") -> list[str]:
    """Names of the convolutions and matrix products whose inputs are quantised, in their order."""
    dequantised = {
        name
        for node in made.graph.node
        if node.op_type == "DequantizeLinear"
        for name in node.output
    }
    return [
        node.name
        for node in made.graph.node
        if node.op_type in PRODUCTS and dequantised.intersection(node.input)
    ]


def in_float(
    made: "onnx.ModelProto", model: "onnx.ModelProto", names: Collection[str]
) -> "onnx.ModelProto":
    """A quantised network some of whose nodes read float32 again.

    Args:
        made: Model from `quantise.quantised_model`.
        model: The model of float32 that it was made of.
        names: Names of the nodes, alike in both.

    Returns:
        A copy, without what nothing needs any more.
    """
    changed = type(made)()
    changed.CopyFrom(made)
    restored = _Restored(changed.graph, model.graph)
    for node in [node for node in changed.graph.node if node.name in names]:
        restored.read(node)
    _keep_needed(changed.graph)
    return changed


class _Restored:
    """Brings back what a graph of float32 had, and quantising took out: weights, a cut at zero."""

    def __init__(self, graph: "onnx.GraphProto", before: "onnx.GraphProto") -> None:
        self._graph = graph
        self._nodes = {node.name: node for node in before.node}
        self._makers = {name: node for node in before.node for name in node.output}
        self._weights = {tensor.name: tensor for tensor in before.initializer}
        self._there = {value.name for value in (*graph.input, *graph.initializer)}
        self._there |= {name for node in graph.node for name in node.output} | {""}

    def read(self, node: "onnx.NodeProto") -> None:
        """Has a node read what it read before."""
        del node.input[:]
        node.input.extend(self._nodes[node.name].input)
        left = list(node.input)
        while left:
            if (name := left.pop()) in self._there:
                continue
            if name in self._weights:
                self._graph.initializer.append(self._weights[name])
                self._there.add(name)
            else:
                maker = self._makers[name]
                self._graph.node.append(maker)
                self._there.update(maker.output)
                left.extend(maker.input)


def _keep_needed(graph: "onnx.GraphProto") -> None:
    """Leaves the nodes and weights that the outputs need, each after what it reads."""
    nodes = list(graph.node)
    of = {name: at for at, node in enumerate(nodes) for name in node.output}
    reads: dict[int, list[int]] = {}
    left = [of[value.name] for value in graph.output if value.name in of]
    while left:
        if (at := left.pop()) not in reads:
            reads[at] = [of[name] for name in nodes[at].input if name in of]
            left.extend(reads[at])
    ordered = TopologicalSorter({at: reads[at] for at in sorted(reads)}).static_order()
    kept = [type(nodes[at]).FromString(nodes[at].SerializeToString()) for at in ordered]
    named = {name for node in kept for name in node.input}
    weights = [tensor for tensor in graph.initializer if tensor.name in named]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(weights)
