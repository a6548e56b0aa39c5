"""A graph of torch's compiler: what of it can be compiled, its digest, and it as a network."""

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.utils import get_static_address_type

from hetfeat.workloads.network import Network
from hetfeat.workloads.networks import of_float32

RESUMED = "torch_dynamo_resume_in_"
"""Text before torch's names of the functions that go on after a break of a graph."""


def refusal(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> str | None:
    """Why a graph is left to torch, as far as that is known before it runs.

    Returns:
        The reason; None where nothing speaks against it, an empty string for what follows a break
        of the graph, which has been told already.
    """
    if InstructionTranslator.current_tx().f_code.co_name.startswith(RESUMED):
        return ""
    broken: Any = getattr(graph, "compile_subgraph_reason", None)
    if broken is not None and broken.graph_break:
        return f"it breaks ({broken.reason.splitlines()[0]})"
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    shapes = [getattr(node.meta.get("example_value"), "shape", ()) for node in nodes]
    sizes = [size for shape in shapes for size in shape]
    tensors = all(isinstance(value, torch.Tensor) for value in example_inputs)
    if not tensors or any(isinstance(size, torch.SymInt) for size in sizes):
        return "its shapes are dynamic; dynamic=False compiles it for each"
    if any(value.device.type != "cpu" for value in example_inputs):
        return "its tensors are not on the CPU"
    if all(map(is_weight, example_inputs)):
        return "it has no inputs"
    return None


def is_weight(value: Any) -> bool:
    """Whether a tensor is a weight or buffer of a module, and is folded into what is compiled."""
    return isinstance(value, torch.nn.Parameter) or get_static_address_type(value) is not None


class Folded(torch.nn.Module):
    """A graph with its weights, called by its inputs alone.

    Args:
        graph: Graph of torch.
        arguments: Tensors that the graph takes, weights included.
        is_folded: Whether each of the arguments is a weight, in their order.
    """

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        arguments: Sequence[torch.Tensor],
        is_folded: Sequence[bool],
    ) -> None:
        super().__init__()
        self.graph_of_torch, self.is_folded = graph, tuple(is_folded)
        for place, value in enumerate(arguments):
            if is_folded[place]:
                self.register_buffer(f"weight_{place}", value.detach())

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The output, or a tuple of several."""
        given = iter(inputs)
        arguments = [
            getattr(self, f"weight_{place}") if folded else next(given)
            for place, folded in enumerate(self.is_folded)
        ]
        outputs = self.graph_of_torch(*arguments)
        return outputs[0] if len(outputs) == 1 else outputs


def as_network(
    graph: torch.fx.GraphModule,
    arguments: Sequence[torch.Tensor],
    is_folded: Sequence[bool],
    name: str,
) -> Network:
    """A graph as a network, its weights folded.

    Raises:
        RequestError: It is of half precision, or quantised.
    """
    pairs = zip(arguments, is_folded, strict=True)
    inputs = tuple(value.detach().clone() for value, folded in pairs if not folded)
    return of_float32(Network(name, Folded(graph, arguments, is_folded).eval(), inputs))


def digest_of_graph(graph: torch.fx.GraphModule, arguments: Sequence[torch.Tensor]) -> str:
    """SHA-256 of the operators, and of the shapes and types of all that they take."""
    total = hashlib.sha256()
    for name, module in graph.named_modules():
        if isinstance(module, torch.fx.GraphModule):
            total.update(f"{name}\n{module.code}\n".encode())
    for value in arguments:
        total.update(f"{value.dtype} {list(value.shape)} {is_weight(value)}\n".encode())
    return total.hexdigest()


def digest_of_weights(tensors: Sequence[torch.Tensor]) -> str:
    """SHA-256 of the contents of tensors."""
    total = hashlib.sha256()
    for value in tensors:
        total.update(f"{value.dtype} {list(value.shape)}\n".encode())
        total.update(value.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
