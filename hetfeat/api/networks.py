"""Networks of the Python API: by name, from a file, from a torch module or from a function."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetfeat.errors import RequestError
from hetfeat.workloads import networks
from hetfeat.workloads.library_errors import refusals
from hetfeat.workloads.network import Network
from hetfeat.workloads.networks import network_slug

if TYPE_CHECKING:
    import torch

    Inputs = torch.Tensor | Sequence[torch.Tensor]
    Source = str | Path | torch.nn.Module | Callable[..., Any]


def load_network(
    network: "Source", inputs: "Inputs | None" = None, *, batch: int = 1, seed: int = 0
) -> Network:
    """A network with example inputs, ready for `deploy_network`.

    The shapes of the example inputs are the shapes that it is compiled for. Networks are float32.
    A torch module is taken in evaluation mode; the module itself stays as it is.

    Args:
        network: One of

            - a name: torchvision's (`resnet18`), timm's (`timm/convnext_atto`) or `bert_base`, with
              seeded random weights;
            - the path of an `.onnx`, `.pt2` or `.tflite` file;
            - `module:function`, or a function: it takes the batch size and returns a torch module
              and a tuple of example inputs;
            - a torch module, or a function of tensors, with `inputs`.
        inputs: Example inputs, a tensor or several, of the last; default None.
        batch: Number of rows of the example inputs, where they are made here; default 1.
        seed: Seed of random weights and inputs, default 0.

    Returns:
        The network; `name`, `module` and `inputs` are its parts.

    Raises:
        RequestError: No such network, one that is not float32, or inputs missing or not needed.
        DataError: The file is not what its name says.

    Examples:
        >>> import torch, hetfeat
        >>> module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
        >>> network = hetfeat.load_network(module, torch.zeros(2, 8))
        >>> network.name, [tuple(value.shape) for value in network.inputs]
        ('sequential', [(2, 8)])
        >>> hetfeat.load_network("squeezenet1_1", batch=2).inputs[0].shape
        torch.Size([2, 3, 224, 224])
    """
    import torch

    if isinstance(network, str | Path):
        if inputs is not None:
            raise RequestError(
                f"network '{network}' with example inputs",
                "inputs for a torch module or a function of tensors alone",
                "leave inputs out; batch says how many rows there are",
            )
        return networks.load_network(str(network), batch, seed)
    name = network_slug(getattr(network, "__name__", type(network).__name__)) or "network"
    if inputs is None and not isinstance(network, torch.nn.Module):
        torch.manual_seed(seed)
        with refusals(name):
            return networks.of_float32(networks.made_by(network, name, batch))
    if inputs is None:
        raise RequestError(
            f"network '{name}' without example inputs",
            "tensors of the shapes that it is compiled for",
            "pass them: load_network(module, inputs)",
        )
    module = network if isinstance(network, torch.nn.Module) else _of_tensors(network)
    tensors = _as_tensors(inputs, name)
    return networks.of_float32(Network(name, in_evaluation_mode(module), tensors))


def _as_tensors(inputs: "Inputs", name: str) -> tuple["torch.Tensor", ...]:
    import torch

    tensors = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
    if not tensors or not all(isinstance(value, torch.Tensor) for value in tensors):
        raise RequestError(
            f"example inputs {[type(value).__name__ for value in tensors]} of network '{name}'",
            "one or more tensors",
            "convert them with torch.as_tensor",
        )
    return tuple(value.detach() for value in tensors)


def in_evaluation_mode(module: "torch.nn.Module") -> "torch.nn.Module":
    """The module, or where it is in training mode a copy that shares its weights and is not."""
    if not any(part.training for part in module.modules()):
        return module
    shared = {id(value): value for value in (*module.parameters(), *module.buffers())}
    return copy.deepcopy(module, shared).eval()


def _of_tensors(function: Callable[..., Any]) -> "torch.nn.Module":
    import torch

    class FunctionOfTensors(torch.nn.Module):
        def forward(self, *inputs: torch.Tensor) -> Any:
            return function(*inputs)

    return FunctionOfTensors()
