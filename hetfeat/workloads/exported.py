"""Networks as torch exports them, and what tells two of them apart."""

import hashlib
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from hetfeat.workloads.library_errors import refusals
from hetfeat.workloads.network import Network
from hetfeat.workloads.networks import is_function, load_network

if TYPE_CHECKING:
    import torch


def exported(network: Network) -> "torch.export.ExportedProgram":
    """A network of torch as a program of its operators.

    Raises:
        RequestError: torch cannot export it.
    """
    import torch

    from hetfeat.workloads.torch_outputs import Picked

    with warnings.catch_warnings(), torch.no_grad(), importing(network):
        warnings.simplefilter("ignore")
        program = torch.export.export(network.module, network.inputs)
        if all(isinstance(name, str) for name in program.graph_signature.user_outputs):
            return program
        # None and numbers are among its outputs, as where a cache is off.
        return torch.export.export(Picked(network.module), network.inputs)


def importing(network: Network) -> AbstractContextManager[None]:
    """Where what is raised says that a network cannot become a Relax module."""
    return refusals(
        network.name,
        "which TVM cannot import",
        f"operators that {network.kind}'s importer in TVM knows",
        "replace those operators in the network",
    )


def function_digest(name: str, batches: Sequence[int], seed: int) -> str | None:
    """SHA-256 of the networks that a `module:function` returns: operators, weights, input shapes.

    That of its source would miss the weights that it reads and the modules that it imports.

    Args:
        name: Name of a network.
        batches: Batch sizes that it is asked for, in rows.
        seed: Seed of weights and inputs, as in `load_network`.

    Returns:
        The digest; None for a network that is no function: its slug tells it from all others.

    Raises:
        RequestError: As `load_network`, or torch cannot export it.
    """
    if not is_function(name):
        return None
    total = hashlib.sha256()
    for batch in batches:
        _add(total, load_network(name, batch, seed))
    return total.hexdigest()


def network_digest(network: Network) -> str | None:
    """The same of a network at hand; None for one of a file, whose name has a digest already."""
    if network.kind != "torch":
        return None
    total = hashlib.sha256()
    _add(total, network)
    return total.hexdigest()


def _add(total: "hashlib._Hash", network: Network) -> None:
    import torch

    program = exported(network)
    total.update(program.graph_module.code.encode())
    shapes = [f"{value.dtype} {list(value.shape)}" for value in network.inputs]
    total.update(" ".join(shapes).encode())
    for key, value in sorted({**program.state_dict, **program.constants}.items()):
        if isinstance(value, torch.Tensor):
            total.update(f"{key} {value.dtype} {list(value.shape)}".encode())
            total.update(value.detach().flatten().view(torch.uint8).numpy().tobytes())
