"""A network as it is passed on, wherever it came from."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[Any]

DIGEST_DIGITS = 8
"""Digits that a network's name has of a file's digest, or of that of the outputs asked for."""


@dataclass(frozen=True)
class Network:
    """A network ready to be exported.

    Attributes:
        name: Slug that names the network; enters bundles and records.
        module: Module of torch in evaluation mode, fp32; of another kind, what runs it: called with
            numpy arrays, it returns a list of them.
        inputs: Example inputs, tensors of torch or, of another kind, numpy arrays; their shapes are
            the shapes it is compiled for.
        onnx: The ONNX model that it is, if it is one, default None; ONNX Runtime then runs it.
        kind: `torch` (the default), `ONNX` or `TFLite`: what it is imported from. LiteRT runs a
            TFLite model.
        outputs: Names of its outputs, if some of them were asked for; default none.

    Examples:
        >>> import torch, hetfeat
        >>> network = hetfeat.Network("relu", torch.nn.ReLU().eval(), (torch.zeros(1, 8),))
        >>> network.kind
        'torch'
    """

    name: str
    module: Any
    inputs: tuple["torch.Tensor | Array", ...]
    onnx: Any = None
    kind: str = "torch"
    outputs: tuple[str, ...] = ()

    def arrays(self) -> list[Array]:
        """The example inputs as numpy arrays."""
        return [np.asarray(value) for value in self.inputs]

    def output_names(self, count: int) -> tuple[str, ...]:
        """What `count` outputs are called: as in an ONNX model, else `output_0` and so on."""
        if self.onnx is not None:
            return tuple(value.name for value in self.onnx.graph.output)
        return self.outputs or tuple(f"output_{place}" for place in range(count))
