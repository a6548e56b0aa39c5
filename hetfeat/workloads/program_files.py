"""Networks in torch's files of exported programs (`.pt2`)."""

import logging
import os
from pathlib import Path
from typing import Any

import torch

from hetfeat.errors import RequestError
from hetfeat.workloads.network import Network
from hetfeat.workloads.quantised_torch import know_operators
from hetfeat.workloads.reading import check_batch, content_of, unreadable


def program_network(path: Path, name: str, batch: int) -> Network:
    """The network of a `.pt2` file.

    Raises:
        RequestError: No such file, one of another batch size, or without inputs that are tensors.
        DataError: The file is no exported program, or one with pickles.
    """
    content_of(path)
    before = os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"  # torch.export.load would unpickle
    log = logging.getLogger("torch.export")
    log.disabled = True  # it logs a traceback before it raises
    know_operators()
    try:
        program = torch.export.load(path)
        module = program.module()
    except Exception as error:  # whatever torch raises for what is no such file
        raise unreadable(path, error) from error
    finally:
        log.disabled = False
        if before is None:
            del os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"]
        else:
            os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = before
    leaves, spec = torch.utils._pytree.tree_flatten(program.example_inputs or ())
    inputs = [value for value in leaves if isinstance(value, torch.Tensor)]
    if not inputs:
        raise RequestError(f"network '{path}'", "example inputs that are tensors", "export it anew")
    signature = program.graph_signature.user_inputs
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    traced = [values.get(name) for name, leaf in zip(signature, leaves, strict=True)]
    examples = tuple(
        _of_batch(path, leaf, value, batch)
        for leaf, value in zip(leaves, traced, strict=True)
        if isinstance(leaf, torch.Tensor)
    )
    return Network(name, _CalledByTensors(module, leaves, spec), examples)


class _CalledByTensors(torch.nn.Module):
    """A program whose inputs are nested or have names, called by its tensors in their order."""

    def __init__(self, module: torch.nn.Module, leaves: list[Any], spec: Any) -> None:
        super().__init__()
        self.module, self.spec = module, spec
        self.others = [None if isinstance(v, torch.Tensor) else v for v in leaves]
        self.tensors = [isinstance(v, torch.Tensor) for v in leaves]

    def forward(self, *inputs: torch.Tensor) -> Any:
        tensors = iter(inputs)
        pairs = zip(self.tensors, self.others, strict=True)
        leaves = [next(tensors) if is_tensor else other for is_tensor, other in pairs]
        arguments, named = torch.utils._pytree.tree_unflatten(leaves, self.spec)
        return self.module(*arguments, **named)


def _of_batch(path: Path, value: torch.Tensor, traced: Any, batch: int) -> torch.Tensor:
    """An example input with as many rows as asked for, if the program leaves them open."""
    if traced is None or not traced.ndim or isinstance(traced.shape[0], int):
        check_batch(path, list(value.shape), batch)
        return value
    return value[torch.arange(batch) % len(value)]
