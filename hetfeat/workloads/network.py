"""A network as it is passed on, wherever it came from."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

DIGEST_DIGITS = 8
"""Digits that a network's name has of a file's digest, or of that of the outputs asked for."""


@dataclass(frozen=True)
class Network:
    """A network ready to be exported.

    Attributes:
        name: Slug that names the network; enters bundles and records.
        module: Module in evaluation mode, fp32.
        inputs: Example inputs; their shapes are the shapes it is compiled for.
        onnx: The ONNX model that it is, if it is one, default None; `module` then runs it in ONNX
            Runtime.
        kind: `torch` (the default), `ONNX` or `TFLite`: what it is imported from. That of a TFLite
            model runs it in LiteRT.
        outputs: Names of its outputs, if some of them were asked for; default none.

    Examples:
        >>> import torch, hetfeat
        >>> network = hetfeat.Network("relu", torch.nn.ReLU().eval(), (torch.zeros(1, 8),))
        >>> network.kind
        'torch'
    """

    name: str
    module: "torch.nn.Module"
    inputs: tuple["torch.Tensor", ...]
    onnx: Any = None
    kind: str = "torch"
    outputs: tuple[str, ...] = ()

    def output_names(self, count: int) -> tuple[str, ...]:
        """What `count` outputs are called: as in an ONNX model, else `output_0` and so on."""
        if self.onnx is not None:
            return tuple(value.name for value in self.onnx.graph.output)
        return self.outputs or tuple(f"output_{place}" for place in range(count))
