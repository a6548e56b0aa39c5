"""Checks a compiled network against the framework it came from."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hetfeat.deploy.bundle import Array, Sample
from hetfeat.errors import RequestError, WorkFailed

if TYPE_CHECKING:
    from hetfeat.workloads.networks import Network

log = logging.getLogger(__name__)

RELATIVE_TOLERANCE = 1e-4
"""Largest error allowed, relative to the largest output: fp32 sums in another order differ by
about 1e-6 of it; a wrong program by much more."""
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


def sample_of(network: "Network") -> Sample:
    """The network's own input, and the output that its framework computes."""
    inputs = [value.numpy() for value in network.inputs]
    expected = _expected(network, network.inputs)
    if expected.dtype == bool:
        raise RequestError(
            f"network '{network.name}', whose output is true or false",
            "an output of numbers, whose error can be told",
            "give its output before the comparison",
        )
    return Sample(inputs, expected, RELATIVE_TOLERANCE * float(np.max(np.abs(expected))))


def rows_are_independent(loaded: Runs, network: "Network", batch: int) -> bool:
    """Whether each row of the output depends on that row of the inputs alone.

    Only then may a batch be cut or padded. Tried by running the network with another first and
    another last row; for a batch of one, in its framework with another row beside it.
    """
    inputs = [value.numpy() for value in network.inputs]
    output = loaded.run(inputs)
    if any(value.ndim == 0 or len(value) != batch for value in [*inputs, output]):
        return False
    if batch == 1:
        return _alike_beside_another(network, inputs)
    for row in (0, batch - 1):
        others = np.arange(batch) != row
        spoilt = loaded.run([_with_another(value, row) for value in inputs])
        if not _alike(spoilt[others], output[others]):
            return False
    return True


def _alike_beside_another(network: "Network", inputs: list[Array]) -> bool:
    """True, too, where the framework takes one row alone: nothing then tells."""
    import torch

    pairs = [np.concatenate([value, _with_another(value, 0)]) for value in inputs]
    try:
        both = _expected(network, [torch.from_numpy(pair) for pair in pairs])
    except Exception:  # the framework's own
        return True
    return len(both) == 2 and _alike(both[:1], _expected(network, network.inputs))


def _with_another(value: Array, row: int) -> Array:
    """With zeros, or what is not zero where they are, as one row."""
    changed = value.copy()
    changed[row] = 0 if value[row].any() else 1
    return changed


def _alike(found: Array, wanted: Array) -> bool:
    return bool(np.max(np.abs(found - wanted)) <= RELATIVE_TOLERANCE * np.max(np.abs(wanted)))


def verify(loaded: Runs, network: "Network", seed: int) -> Verified:
    """Compares outputs on the network's own input and on random ones.

    Raises:
        WorkFailed: The error is over the tolerance, or an element is not a finite number.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    errors, scales, outputs = [], [], []
    for number in range(RANDOM_INPUTS + 1):
        inputs = [v if number == 0 else _random_like(v, generator) for v in network.inputs]
        expected = _expected(network, inputs)
        found = loaded.run([value.numpy() for value in inputs])
        errors.append(np.max(np.abs(found - expected)))
        scales.append(np.max(np.abs(expected)))
        outputs.append(expected)
    # NumPy's maximum hands a NaN on, Python's may drop it; a NaN is under no tolerance.
    error, tolerance = float(np.max(errors)), RELATIVE_TOLERANCE * float(np.max(scales))
    if not error <= tolerance:
        raise WorkFailed(
            f"a compiled network whose output is off by {error:.3g}",
            f"at most {tolerance:.3g}, {RELATIVE_TOLERANCE:g} of the largest output",
            "deploy with --refresh true; if it stays, report the network",
        )
    if network.inputs[0].is_floating_point() and not np.ptp(outputs, axis=0).any():
        log.warning("verified little: the network's output is the same for every input")
    return Verified(error, tolerance)


def _random_like(value: Any, generator: Any) -> Any:
    import torch

    if value.is_floating_point():
        return torch.randn(value.shape, generator=generator, dtype=value.dtype)
    return value  # token ids and the like: random ones may be out of range


def _expected(network: "Network", inputs: Sequence[Any]) -> Any:
    import torch

    with torch.inference_mode():
        output = network.module(*inputs)
    while isinstance(output, tuple | list | Mapping):
        output = next(iter(output.values() if isinstance(output, Mapping) else output))
    return output.numpy()
