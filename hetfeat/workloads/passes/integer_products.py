"""Which convolutions and matrix products of a quantised network are ones of integers."""

from dataclasses import dataclass
from typing import Any

import tvm

from hetfeat.workloads.passes.integers import bindings, make_integers
from hetfeat.workloads.passes.simplify import operator_of, static_shape


@dataclass(frozen=True)
class Product:
    """A convolution or a matrix product of a quantised network.

    Attributes:
        operator: Name of the operator, without its first part.
        shape: Shape of what it computes.
        is_integer: Whether it is one of integers.
    """

    operator: str
    shape: tuple[int, ...]
    is_integer: bool

    def __str__(self) -> str:
        """As a log names it."""
        return f"{self.operator} of {'x'.join(map(str, self.shape))}"


def find_products(module: tvm.IRModule) -> list[Product]:
    """The convolutions and matrix products of a network, as it was imported."""
    found = []
    for binding in bindings(make_integers(module)):
        name = operator_of(binding.value).removeprefix("relax.")
        if (name.startswith("nn.conv") and not _adds_up(binding.value)) or name == "matmul":
            integer = str(binding.var.ty.dtype) == "int32"
            found.append(Product(name, static_shape(binding.var) or (), integer))
    return found


def _adds_up(convolution: Any) -> bool:
    """Whether it is one with ones alone, which an average was made of."""
    weights = convolution.args[1]
    return isinstance(weights, tvm.ir.GenericConst) and bool((weights.value.numpy() == 1).all())
