"""Checks a compiled network against the framework it came from."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hetfeat.deploy.bundle import Array, Output, Sample
from hetfeat.deploy.integers import exact_outputs, quantised
from hetfeat.deploy.runtime import as_tuple, largest_error, worst
from hetfeat.errors import HetfeatError, RequestError, WorkFailed
from hetfeat.workloads.example_inputs import computed, draws, values_of

if TYPE_CHECKING:
    from hetfeat.workloads.network import Network

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ToleranceOptions:
    """How far off an output may be, by what it is on all inputs.

    Attributes:
        relative: Largest error allowed, relative to the largest output, 1e-4 by default: fp32 sums
            in another order differ by about 1e-6 of it; a wrong program by much more.
        of_what_changes: Largest error allowed, relative to how far the inputs move the output, 0.01
            by default: most of it may be constant.
        rounding: Least tolerance, relative to the largest output, 4e-6 by default: fp32 itself
            differs by about a quarter of it.
        telling: Largest tolerance that tells much, relative to how far the inputs move the output;
            0.1 by default.
    """

    relative: float = 1e-4
    of_what_changes: float = 1e-2
    rounding: float = 4e-6
    telling: float = 0.1


TO_THE_BIT = ToleranceOptions(relative=0, of_what_changes=0, rounding=0)
"""What is allowed where integers are compared."""
OF_HALVES = {
    "float16": ToleranceOptions(relative=2e-2, of_what_changes=5e-2, rounding=2e-3, telling=0.5),
    "bfloat16": ToleranceOptions(relative=0.1, of_what_changes=0.2, rounding=1.6e-2, telling=0.5),
}
"""What is allowed of a network whose products are of half precision, by their type.

A number stored as float16 is off by up to 5e-4 of itself. torch's float16 was off by 2.7e-3 of the
largest output, and 4.3e-3 of what changes, for BERT-base; by 7.9e-4 of the largest for ResNet-50,
whose outputs hardly change. bfloat16 has three bits less: a number is off by up to 4e-3 of itself.
"""
OF_OTHER_ROUNDINGS = ToleranceOptions(relative=0.1, of_what_changes=0.2, telling=0.5)
"""What is allowed of a quantised network of which float32 decides some steps."""


class Runs(Protocol):
    """A network that was compiled, here or on a device."""

    def run(self, inputs: list[Array]) -> Array | tuple[Array, ...]:
        """The output for inputs, or all of several."""


@dataclass(frozen=True)
class Verified:
    """Largest error over all inputs and what was allowed, of the output that is furthest off."""

    max_abs_error: float
    tolerance: float


@dataclass(frozen=True)
class Reference:
    """What a network computes in the framework that it comes from, on several inputs.

    Attributes:
        network: Network in the framework that it comes from.
        samples: Inputs and outputs of the network, all numbers; the first is what a bundle keeps.
        silent: Names of the outputs that the inputs hardly move: a wrong one would not show.
        values: Descriptions of what each input was drawn from.
        integers: What a manifest says of a quantised network, default None for others.
    """

    network: "Network"
    samples: tuple[Sample, ...]
    silent: tuple[str, ...]
    values: tuple[str, ...]
    integers: dict[str, Any] | None = None

    @property
    def tells(self) -> bool:
        """Whether the inputs move every output by so much that a wrong one shows."""
        return not self.silent

    def facts(self) -> dict[str, Any]:
        """What a manifest says of it."""
        drawn = {"inputs": list(self.values), "draws": len(self.samples), "tells": self.tells}
        facts = {"verified_on": drawn | ({"silent": list(self.silent)} if self.silent else {})}
        return facts | ({"integers": self.integers} if self.integers else {})


def reference_of(
    network: "Network",
    seed: int,
    *,
    module: Any = None,
    random_inputs: int = 3,
    tolerance: ToleranceOptions = ToleranceOptions(),
) -> Reference:
    """Computes a network in its framework, on its own input and on random ones.

    A quantised one is computed in exact integers, where its module is given.

    Args:
        network: Network in its framework.
        seed: Seed of the random inputs.
        module: Module from `workloads.relax.import_network`, default None.
        random_inputs: Number of random inputs, 3 by default.
        tolerance: Settings of what is allowed; those of `ToleranceOptions` by default.

    Raises:
        RequestError: The framework does not run it, an output is true or false, or no draw has
            finite numbers in every output.
    """
    values = values_of(network) or []
    drawn = list(_drawn(network, values, seed, random_inputs))
    names = network.output_names(len(drawn[0][1]))
    facts = None
    if module is not None and (integers := quantised(module)):
        drawn, inexact = exact_outputs(network, integers, drawn)
        tolerance = OF_OTHER_ROUNDINGS if inexact else TO_THE_BIT
        facts = integers.facts(inexact)
    usable = [sample for sample in drawn if all(map(_is_finite, sample[1]))]
    if not usable:
        raise _not_finite(network, [outputs for _, outputs in drawn])
    usable.sort(key=lambda sample: not all(np.ptp(value) > 0 for value in sample[1]))
    outputs_of_each = zip(*(outputs for _, outputs in usable), strict=True)
    limits = [_limit(values, tolerance) for values in outputs_of_each]

    def sample_of_draw(inputs: list[Array], outputs: list[Array]) -> Sample:
        of_each = zip(names, outputs, limits, strict=True)
        return Sample(
            inputs, tuple(Output(name, value, most) for name, value, (most, _) in of_each)
        )

    samples = tuple(sample_of_draw(*drawn) for drawn in usable)
    silent = tuple(name for name, (_, tells) in zip(names, limits, strict=True) if not tells)
    return Reference(network, samples, silent, tuple(str(of) for of in values), facts)


def need_output(network: "Network", seed: int, random_inputs: int = 3) -> None:
    """Refuses what `reference_of` would refuse of a network, with one usable input as a rule.

    Raises:
        RequestError: As `reference_of`.
    """
    found = []
    for _, outputs in _drawn(network, values_of(network) or [], seed, random_inputs):
        if all(map(_is_finite, outputs)):
            return
        found.append(outputs)
    raise _not_finite(network, found)


def _drawn(
    network: "Network", values: Sequence[Any], seed: int, random_inputs: int
) -> Iterator[tuple[list[Array], list[Array]]]:
    """Inputs and what the framework makes of them, the network's own input first."""
    for inputs in draws(network, values, seed, random_inputs if values else 0):
        yield inputs, _computed(network, inputs)


def _not_finite(network: "Network", draws: Sequence[list[Array]]) -> RequestError:
    """Says which outputs are no numbers on any draw; all, if each is on another one."""
    names = network.output_names(len(draws[0]))
    finite = [any(map(_is_finite, values)) for values in zip(*draws, strict=True)]
    never = [name for name, some in zip(names, finite, strict=True) if not some]
    return RequestError(
        f"network '{network.name}', whose own output {', '.join(never or names)} is not a finite "
        f"number for any of {len(draws)} example inputs",
        "outputs to compare the compiled ones with",
        "mend it, leave the output out with --output, or give example inputs that it works on by "
        "a module:function",
    )


def _is_finite(output: Array) -> bool:
    return bool(not np.isnan(output).any() and np.isfinite(output).any())


def _limit(of_draws: Sequence[Array], options: ToleranceOptions) -> tuple[float, bool]:
    """The tolerance of an output, and whether a wrong one shows, by what it is on all inputs."""
    finite = [np.where(np.isfinite(output), output, 0).astype(np.float64) for output in of_draws]
    largest = float(np.max(np.abs(finite), initial=0.0))
    moved = float(np.max(np.ptp(finite, axis=0), initial=0.0)) / 2
    allowed = min(options.relative * largest, options.of_what_changes * moved)
    tolerance = max(allowed, options.rounding * largest)
    return tolerance, moved > 0 and tolerance <= options.telling * moved


def sample_of(network: "Network", seed: int = 0) -> Sample:
    """The computation that checks a copy of a network's bundle.

    Raises:
        RequestError: As `reference_of`.
    """
    return reference_of(network, seed).samples[0]


def rows_are_independent(loaded: Runs, reference: Reference, batch: int) -> bool:
    """Whether each row of the outputs depends on that row of the inputs alone.

    Only then may a batch be cut or padded. Tried by running the network with another first and
    another last row; for a batch of one, in its framework with another row beside it.
    """
    sample = reference.samples[0]
    inputs, outputs = list(sample.inputs), as_tuple(loaded.run(list(sample.inputs)))
    if any(value.ndim == 0 or len(value) != batch for value in [*inputs, *outputs]):
        return False
    if batch == 1:
        return _alike_beside_another(reference, inputs)
    for row in (0, batch - 1):
        others = np.arange(batch) != row
        spoilt = as_tuple(loaded.run([_with_another(value, row) for value in inputs]))
        for changed, output, expected in zip(spoilt, outputs, sample.outputs, strict=True):
            if largest_error(changed[others], output[others]) > expected.tolerance:
                return False
    return True


def _alike_beside_another(reference: Reference, inputs: list[Array]) -> bool:
    """True, too, where the framework takes one row alone: nothing then tells."""
    pairs = [np.concatenate([value, _with_another(value, 0)]) for value in inputs]
    try:
        both = computed(reference.network, pairs)
    except Exception:  # the framework's own
        return True
    expected = [(output.value, output.tolerance) for output in reference.samples[0].outputs]
    if reference.integers:  # which the framework does not compute
        alone = computed(reference.network, inputs)
        expected = [(value, OF_OTHER_ROUNDINGS.relative * np.abs(value).max()) for value in alone]
    return all(
        len(pair) == 2 and largest_error(pair[:1], value) <= tolerance
        for pair, (value, tolerance) in zip(both, expected, strict=True)
    )


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
    errors = [error for sample in reference.samples for error in _errors(loaded, sample)]
    for error, output in errors:
        if not error <= output.tolerance:
            raise WorkFailed(
                f"a compiled network whose output '{output.name}' is off by {error:.3g}",
                _allowed(output),
                "deploy with --refresh true; if it stays, report the network",
            )
    return Verified(*worst((error, output.tolerance) for error, output in errors))


def refuse_wrong_import(loaded: Runs, reference: Reference) -> None:
    """Compares a network that TVM compiled as it imported it, before time is spent on it.

    Raises:
        WorkFailed: It computes something else.
    """
    sample = reference.samples[0]
    outputs = as_tuple(loaded.run(list(sample.inputs)))
    for value, output in zip(outputs, sample.outputs, strict=True):
        error, expected = largest_error(value, output.value), list(output.value.shape)
        if not error <= output.tolerance:
            shape_here = list(value.shape)
            of_shape = "" if shape_here == expected else f" and of shape {shape_here}"
            shape = f", shape {expected}" if of_shape else ""
            raise WorkFailed(
                f"network '{reference.network.name}', whose output '{output.name}' is off by "
                f"{error:.3g}{of_shape} as TVM imports it, before any tuning",
                _allowed(output) + shape,
                "replace what TVM imports wrongly, such as Resize or Upsample, or report the "
                "network",
            )


def _errors(loaded: Runs, sample: Sample) -> list[tuple[float, Output]]:
    """The largest error of each output on a sample."""
    outputs = as_tuple(loaded.run(list(sample.inputs)))
    pairs = zip(outputs, sample.outputs, strict=True)
    return [(largest_error(value, output.value), output) for value, output in pairs]


def _allowed(output: Output) -> str:
    return f"at most {output.tolerance:.3g}, by what its framework computes"


def _computed(network: "Network", inputs: Sequence[Array]) -> list[Array]:
    """The outputs in the framework.

    Raises:
        RequestError: The framework refuses, or an output is true or false.
    """
    try:
        outputs = computed(network, inputs)
    except HetfeatError:
        raise
    except Exception as error:  # the framework's own
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RequestError(
            f"network '{network.name}', which its own framework does not run ({first})",
            "a network that runs on its example inputs",
            "mend it, or its example inputs",
        ) from error
    for name, output in zip(network.output_names(len(outputs)), outputs, strict=True):
        if output.dtype == bool:
            raise RequestError(
                f"network '{network.name}', whose output {name} is true or false",
                "outputs of numbers, whose error can be told",
                "give it before the comparison, or leave it out with --output",
            )
    return outputs
