"""A network as it is passed on, wherever it came from."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Network:
    """A network ready to be exported.

    Attributes:
        name: Slug; enters bundles and records.
        module: In evaluation mode, fp32.
        inputs: Example inputs; their shapes are the shapes it is compiled for.
        onnx: The ONNX model that it is, if it is one; `module` then runs it in ONNX Runtime.
        kind: `torch`, `ONNX` or `TFLite`: what it is imported from. That of a TFLite model runs
            it in LiteRT.
    """

    name: str
    module: "torch.nn.Module"
    inputs: tuple["torch.Tensor", ...]
    onnx: Any = None
    kind: str = "torch"
