"""What a quantised network must compute: the integers of numpy, to the bit."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hetfeat.deploy.bundle import Array
from hetfeat.errors import WorkFailed
from hetfeat.workloads.integer_reference import run_integers
from hetfeat.workloads.integer_tensors import InexactError

if TYPE_CHECKING:
    from hetfeat.workloads.network import Network

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Quantised:
    """A quantised network, as it was imported.

    Attributes:
        module: Module from `workloads.relax.import_network`.
        products: Number of its convolutions and matrix products that are of integers.
        in_float: Names of the others, by operator and shape.
    """

    module: Any
    products: int
    in_float: tuple[str, ...]

    def facts(self, inexact: str) -> dict[str, Any]:
        """What a manifest says of it.

        Args:
            inexact: Operator of float32 that keeps its outputs from being exact, or nothing.
        """
        exact = {"exact": not inexact, "products": self.products, "in_float": list(self.in_float)}
        return exact | ({"inexact": inexact} if inexact else {})


def quantised(module: Any) -> Quantised | None:
    """What is made of integers in a network; None if it is not quantised."""
    from hetfeat.workloads.passes.integer_products import find_products
    from hetfeat.workloads.passes.integers import is_quantised

    if not is_quantised(module):
        return None
    products = find_products(module)
    in_float = tuple(str(product) for product in products if not product.is_integer)
    if in_float:
        log.warning("left in float32: %s", ", ".join(in_float))
    return Quantised(module, len(products) - len(in_float), in_float)


def exact_outputs(
    network: "Network",
    integers: Quantised,
    draws: Sequence[tuple[list[Array], list[Array]]],
    *,
    largest_share: float = 0.5,
) -> tuple[list[tuple[list[Array], list[Array]]], str]:
    """Inputs and the outputs in exact integers, and the operator that none are known of.

    Args:
        network: Network in its framework.
        integers: The same, imported.
        draws: Inputs, and outputs that the framework computes in float32.
        largest_share: How far both may be apart, as a share of how far the inputs move an output;
            0.5 by default. Rounding in other places is told from another network.

    Raises:
        WorkFailed: They are further apart: it was imported wrongly.
    """
    try:
        exact = [(inputs, run_integers(integers.module, inputs)) for inputs, _ in draws]
    except InexactError as error:
        return list(draws), str(error)
    for place, name in enumerate(network.output_names(len(exact[0][1]))):
        ours, theirs = (
            np.stack([outputs[place] for _, outputs in of]).astype(np.float64)
            for of in (exact, draws)
        )
        apart, moved = np.sqrt(np.mean((ours - theirs) ** 2)), np.std(theirs)
        if not apart <= largest_share * max(moved, np.abs(theirs).max() / 100):
            raise WorkFailed(
                f"network '{network.name}', whose output '{name}' in integers is {apart:.3g} from "
                f"that in float32, which moves by {moved:.3g}",
                "integers that differ by rounding alone",
                "report the network",
            )
    return exact, ""
