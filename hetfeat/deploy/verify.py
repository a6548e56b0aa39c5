"""Checks a compiled network against the framework it came from."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hetfeat.deploy.bundle import Array, Sample
from hetfeat.deploy.runtime import largest_error
from hetfeat.errors import HetfeatError, RequestError, WorkFailed
from hetfeat.workloads.example_inputs import computed, draws, values_of

if TYPE_CHECKING:
    from hetfeat.workloads.network import Network

log = logging.getLogger(__name__)

RELATIVE_TOLERANCE = 1e-4
"""Largest error allowed, relative to the largest output: fp32 sums in another order differ by
about 1e-6 of it; a wrong program by much more."""
OF_WHAT_CHANGES = 1e-2
"""Of how far the inputs move the output, at most so much is allowed: most of it may be constant."""
ROUNDING = 4e-6
"""Of the largest output, which no tolerance is under: fp32 itself differs by about a quarter."""
TELLING = 0.1
"""Of how far the inputs move the output: a tolerance above it tells little."""
RANDOM_INPUTS = 3


class Runs(Protocol):
    """A network that was compiled, here or on a device."""

    def run(self, inputs: list[Array]) -> Array:
        """The output for inputs."""


@dataclass(frozen=True)
class Verified:
    """Largest error over all elements and inputs, and what was allowed; in units of the output."""

    max_abs_error: float
    tolerance: float


@dataclass(frozen=True)
class Reference:
    """What a network computes in the framework that it comes from, on several inputs.

    Attributes:
        network: The network.
        samples: Its inputs and outputs, all numbers; the first is what a bundle keeps.
        tells: Whether the inputs move the output by so much that a wrong one shows.
        values: What each input was drawn from, in words.
    """

    network: "Network"
    samples: tuple[Sample, ...]
    tells: bool
    values: tuple[str, ...]

    @property
    def tolerance(self) -> float:
        """Largest error allowed, in units of the output."""
        return self.samples[0].tolerance

    def facts(self) -> dict[str, Any]:
        """What a manifest says of it."""
        drawn = {"inputs": list(self.values), "draws": len(self.samples), "tells": self.tells}
        return {"verified_on": drawn}


def reference_of(network: "Network", seed: int) -> Reference:
    """Computes a network in its framework, on its own input and on random ones.

    Raises:
        RequestError: The framework does not run it, its output is true or false, or no output
            is of finite numbers.
    """
    values = values_of(network) or []
    numbers = []
    for inputs in draws(network, values, seed, RANDOM_INPUTS if values else 0):
        output = _computed(network, inputs)
        if not np.isnan(output).any() and np.isfinite(output).any():
            numbers.append(([value.numpy() for value in inputs], output))
    if not numbers:
        raise RequestError(
            f"network '{network.name}', whose own output is not a finite number for any of "
            f"{RANDOM_INPUTS + 1} example inputs",
            "an output to compare the compiled one with",
            "mend it, or give example inputs that it works on by a module:function",
        )
    finite = [np.where(np.isfinite(output), output, 0).astype(np.float64) for _, output in numbers]
    largest = float(np.max(np.abs(finite), initial=0.0))
    moved = float(np.max(np.ptp(finite, axis=0), initial=0.0)) / 2
    allowed = min(RELATIVE_TOLERANCE * largest, OF_WHAT_CHANGES * moved)
    tolerance = max(allowed, ROUNDING * largest)
    numbers.sort(key=lambda sample: not np.ptp(sample[1]) > 0)  # one that varies comes first
    samples = tuple(Sample(inputs, output, tolerance) for inputs, output in numbers)
    tells = moved > 0 and tolerance <= TELLING * moved
    return Reference(network, samples, tells, tuple(str(of) for of in values))


def sample_of(network: "Network", seed: int = 0) -> Sample:
    """The computation that proves a copy of a network's bundle.

    Raises:
        RequestError: As `reference_of`.
    """
    return reference_of(network, seed).samples[0]


def rows_are_independent(loaded: Runs, reference: Reference, batch: int) -> bool:
    """Whether each row of the output depends on that row of the inputs alone.

    Only then may a batch be cut or padded. Tried by running the network with another first and
    another last row; for a batch of one, in its framework with another row beside it.
    """
    inputs = list(reference.samples[0].inputs)
    output = loaded.run(inputs)
    if any(value.ndim == 0 or len(value) != batch for value in [*inputs, output]):
        return False
    if batch == 1:
        return _alike_beside_another(reference, inputs)
    for row in (0, batch - 1):
        others = np.arange(batch) != row
        spoilt = loaded.run([_with_another(value, row) for value in inputs])
        if largest_error(spoilt[others], output[others]) > reference.tolerance:
            return False
    return True


def _alike_beside_another(reference: Reference, inputs: list[Array]) -> bool:
    """True, too, where the framework takes one row alone: nothing then tells."""
    import torch

    pairs = [np.concatenate([value, _with_another(value, 0)]) for value in inputs]
    try:
        both = computed(reference.network, [torch.from_numpy(pair) for pair in pairs])
    except Exception:  # the framework's own
        return True
    alone = reference.samples[0].output
    return len(both) == 2 and largest_error(both[:1], alone) <= reference.tolerance


def _with_another(value: Array, row: int) -> Array:
    """With zeros, or what is not zero where they are, as one row."""
    changed = value.copy()
    changed[row] = 0 if value[row].any() else 1
    return changed


def verify(loaded: Runs, reference: Reference) -> Verified:
    """Compares a compiled network's outputs with all of a reference.

    Raises:
        WorkFailed: The error is over the tolerance, or an element is not the number it should be.
    """
    error = worst_error(loaded, reference.samples)
    if not error <= reference.tolerance:
        raise WorkFailed(
            f"a compiled network whose output is off by {error:.3g}",
            _allowed(reference),
            "deploy with --refresh true; if it stays, report the network",
        )
    return Verified(error, reference.tolerance)


def refuse_wrong_import(loaded: Runs, reference: Reference) -> None:
    """Compares a network that TVM compiled as it imported it, before time is spent on it.

    Raises:
        WorkFailed: It computes something else.
    """
    sample = reference.samples[0]
    found = loaded.run(list(sample.inputs))
    error, wanted = largest_error(found, sample.output), list(sample.output.shape)
    if not error <= reference.tolerance:
        of_shape = "" if list(found.shape) == wanted else f" and of shape {list(found.shape)}"
        shape = f", shape {wanted}" if of_shape else ""
        raise WorkFailed(
            f"network '{reference.network.name}', whose output {_output_name(reference.network)}"
            f"is off by {error:.3g}{of_shape} as TVM imports it, before any tuning",
            _allowed(reference) + shape,
            "replace what TVM imports wrongly, such as Resize or Upsample, or report the network",
        )


def worst_error(loaded: Runs, samples: Sequence[Sample]) -> float:
    """Largest error on samples."""
    found = ((loaded.run(list(sample.inputs)), sample.output) for sample in samples)
    return max(largest_error(output, expected) for output, expected in found)


def _allowed(reference: Reference) -> str:
    return f"at most {reference.tolerance:.3g}, by what its framework computes"


def _output_name(network: "Network") -> str:
    return f"'{network.onnx.graph.output[0].name}' " if network.onnx is not None else ""


def _computed(network: "Network", inputs: Sequence[Any]) -> Array:
    """The output in the framework.

    Raises:
        RequestError: The framework refuses, or the output is true or false.
    """
    try:
        output: Array = computed(network, inputs)
    except HetfeatError:
        raise
    except Exception as error:  # the framework's own
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RequestError(
            f"network '{network.name}', which its own framework does not run ({first})",
            "a network that runs on its example inputs",
            "mend it, or its example inputs",
        ) from error
    if output.dtype == bool:
        raise RequestError(
            f"network '{network.name}', whose output is true or false",
            "an output of numbers, whose error can be told",
            "give its output before the comparison",
        )
    return output
