"""Whether a source model helps on a device: decided before anything is tested."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

KEPT, DROPPED = "kept", "dropped"


@dataclass(frozen=True)
class GateOptions:
    """When a source is kept.

    With labels shuffled within each task 19 sources came to a valid PCA of 0.44 to 0.60, with the
    right ones to 0.68 or more (`benchmarks/transfer_pairs.py sources`). On the measured programs a
    coin has 0.5. Sources with shuffled labels reached 0.52 there, and fine-tuned for long enough
    they were as good as no source, which is luck to tell from better.

    Attributes:
        least_valid_pca: Lowest PCA of a source on the valid side of its own devices, default 0.62.
        least_source_pca: Lowest PCA of a source on the measured programs, default 0.55.
        standard_errors: Standard errors over tasks by which the gain over no source exceeds zero,
            default 2.
    """

    least_valid_pca: float = 0.62
    least_source_pca: float = 0.55
    standard_errors: float = 2.0


DEFAULT_GATE = GateOptions()


def is_at_chance(valid_pca: float | None, options: GateOptions = DEFAULT_GATE) -> bool:
    """Whether a source with this PCA on its own valid side has nothing to transfer."""
    return valid_pca is not None and valid_pca < options.least_valid_pca


@dataclass(frozen=True)
class Decision:
    """The gate's word.

    Attributes:
        gate: The word: `kept` or `dropped`.
        reason: Text with the figures that it rests on.
    """

    gate: str
    reason: str

    @property
    def kept(self) -> bool:
        """Whether the source goes into the device's model."""
        return self.gate == KEPT


def decide(
    source: Floats,
    transfer: Floats,
    scratch: Floats,
    valid_pca: float | None = None,
    options: GateOptions = DEFAULT_GATE,
) -> Decision:
    """Drops a source that orders the device's programs hardly better than chance or no source.

    Args:
        source: PCA of the source model, unchanged, on the measured programs of each task, float64
            [tasks].
        transfer: PCA of fine-tuned models on the same, float64 [tasks]; each program is scored by a
            model that has not seen it.
        scratch: PCA of models without a source on the same, float64 [tasks].
        valid_pca: PCA of the source on its own valid side, as `CostModel` has it; default None.
        options: Thresholds of the decision, default `DEFAULT_GATE`.
    """
    if is_at_chance(valid_pca, options):
        return Decision(
            DROPPED,
            f"the source on programs of its own devices: PCA {valid_pca:.4f}, at least "
            f"{options.least_valid_pca}; check its records, or train it on more",
        )
    if not len(source) or not source.mean() >= options.least_source_pca:
        said = f"PCA {source.mean():.4f}" if len(source) else "no pairs"
        return Decision(
            DROPPED,
            f"the source on the measured programs: {said}, at least {options.least_source_pca}",
        )
    gains = transfer - scratch
    error = float(gains.std(ddof=1)) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    kept = float(gains.mean()) > options.standard_errors * error
    return Decision(
        KEPT if kept else DROPPED,
        f"on the measured programs PCA {transfer.mean():.4f}, {scratch.mean():.4f} without a "
        f"source (standard error of the difference {error:.4f})",
    )
