"""The outputs of a network, and a network less those that nobody asked for."""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

from hetfeat.errors import RequestError
from hetfeat.workloads.example_inputs import computed
from hetfeat.workloads.network import DIGEST_DIGITS, Network
from hetfeat.workloads.tflite import of_outputs


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
        module = of_outputs(network.module, places)
    else:
        from hetfeat.workloads.torch_outputs import Picked

        module = Picked(network.module, places)
    digest = hashlib.sha256("\n".join(selected).encode()).hexdigest()[:DIGEST_DIGITS]
    name = f"{network.name}_{digest}"
    return dataclasses.replace(network, name=name, module=module, outputs=tuple(selected))


def _all_names(network: Network) -> tuple[str, ...]:
    if network.onnx is not None:
        return network.output_names(0)
    return network.output_names(len(computed(network, network.arrays())))


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
