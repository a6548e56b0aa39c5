"""How far a quantised network is from the one of float32 that it was made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from hetfeat.parsing import PositiveInt, Schema, printable
from hetfeat.workloads.example_inputs import computed

if TYPE_CHECKING:
    from hetfeat.workloads.network import Network

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Accuracy:
    """What quantising changed, on inputs that were not calibrated with.

    Attributes:
        snr_db: Ratio of signal to noise of the output that is furthest off, in decibels.
        top1_agreement: Share of rows whose largest number is in the same place; None where the
            first output is not rows of numbers.
        rows: Number of rows that were compared.
        worst_layers: Tensors that changed most, the worst first, each with its ratio in decibels.
        in_float: Layers that went back to float32 for the sake of accuracy; none by default.
    """

    snr_db: float
    top1_agreement: float | None
    rows: int
    worst_layers: tuple[tuple[str, float], ...]
    in_float: tuple[str, ...] = ()

    @property
    def loss(self) -> float:
        """Share of rows with another first class; without classes, noise over signal."""
        same = self.top1_agreement
        return 10 ** (-self.snr_db / 10) if same is None else 1 - same

    def figures(self) -> dict[str, float]:
        """What is told in numbers, by name."""
        ratio = {"snr_db": self.snr_db}
        same = self.top1_agreement
        return ratio if same is None else ratio | {"top1_agreement": same}

    def described(self) -> str:
        """One line for people."""
        same = self.top1_agreement
        classes = "" if same is None else f", the same first class in {same:.1%}"
        layers = f", {len(self.in_float)} layers in float32" if self.in_float else ""
        ratio = f"{self.snr_db:.1f} dB"
        return f"int8 against float32 on {self.rows} rows held out: {ratio}{classes}{layers}"

    def described_layers(self, most: int = 3) -> str:
        """The layers that are furthest off, 3 by default, in a line that may be empty."""
        layers = (f"{name} {ratio:.1f} dB" for name, ratio in self.worst_layers[:most])
        return printable(", ".join(layers), 200)


class KeptAccuracy(Schema):
    """The same as a report keeps it."""

    snr_db: float
    top1_agreement: Annotated[float, Field(ge=0, le=1)] | None
    rows: PositiveInt
    worst_layers: list[Annotated[list[str | float], Field(min_length=2, max_length=2)]]
    in_float: list[str] = Field(default_factory=list)  # older bundles do not say it


def as_accuracy(kept: dict[str, Any]) -> Accuracy:
    """The accuracy that `KeptAccuracy` has parsed."""
    layers = tuple((str(name), float(ratio)) for name, ratio in kept["worst_layers"])
    return Accuracy(**kept | {"worst_layers": layers, "in_float": tuple(kept["in_float"])})


def compare_networks(
    network: "Network",
    made: "Network",
    samples: Sequence[Sequence[Array]],
    worst_layers: Sequence[tuple[str, float]],
) -> Accuracy:
    """Runs both networks on the same inputs.

    Args:
        network: Network of float32.
        made: The same, quantised.
        samples: Inputs, none of which calibrated it.
        worst_layers: What `workloads.quantise.worst_layers` tells.
    """
    pairs = [[computed(of, sample) for of in (network, made)] for sample in samples]
    float_outputs, outputs = (
        [np.concatenate([np.atleast_1d(value) for value in of]) for of in zip(*each, strict=True)]
        for each in zip(*pairs, strict=True)
    )
    ratios = map(signal_to_noise_db, float_outputs, outputs)
    rows = sum(len(np.atleast_1d(sample[0])) for sample in samples)
    first, other = float_outputs[0], outputs[0]
    agreement = None
    if first.ndim == 2 and first.shape[1] > 1:
        agreement = float(np.mean(first.argmax(1) == other.argmax(1)))
    return Accuracy(min(ratios), agreement, rows, tuple(worst_layers))


def signal_to_noise_db(signal: Array, changed: Array, most_db: float = 200.0) -> float:
    """Ratio of the power of a signal to that of what was added to it, in decibels.

    Args:
        signal: Numbers as they should be.
        changed: Numbers as they are.
        most_db: Ratio where nothing was added, 200 by default: beyond what float32 tells.
    """
    signal, changed = signal.astype(np.float64), changed.astype(np.float64)
    power, noise = float(np.square(signal).sum()), float(np.square(signal - changed).sum())
    if noise <= power * 10 ** (-most_db / 10):
        return most_db
    if power == 0:
        return -most_db
    return round(max(-most_db, 10 * float(np.log10(power / noise))), 2)
