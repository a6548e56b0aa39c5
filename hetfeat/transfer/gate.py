"""Whether a source model helps on a device: decided before anything is tested."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

KEPT, DROPPED = "kept", "dropped"
LEAST_VALID_PCA = 0.62
"""Of a source, on what its own devices said of programs that it did not learn from. With labels
shuffled within each task 19 sources came to 0.44 to 0.60, with the right ones to 0.68 or more
(`benchmarks/transfer_pairs.py sources`)."""
LEAST_SOURCE_PCA = 0.55
"""A coin has 0.5. Sources with shuffled labels reached 0.52, and fine-tuned for long enough they
were as good as no source, which is luck to tell from better."""
STANDARD_ERRORS = 2.0
"""By how many the gain over no source must exceed zero."""


def is_at_chance(valid_pca: float | None) -> bool:
    """Whether a source with this PCA on its own valid side has nothing to transfer."""
    return valid_pca is not None and valid_pca < LEAST_VALID_PCA


@dataclass(frozen=True)
class Decision:
    """The gate's word.

    Attributes:
        gate: `kept` or `dropped`.
        reason: The figures it rests on.
    """

    gate: str
    reason: str

    @property
    def kept(self) -> bool:
        """Whether the source goes into the device's model."""
        return self.gate == KEPT


def decide(
    source: Floats, transfer: Floats, scratch: Floats, valid_pca: float | None = None
) -> Decision:
    """Drops a source that orders the device's programs hardly better than chance or no source.

    Args:
        source: PCA of the source model, unchanged, on the measured programs of each task, float64
            [tasks].
        transfer: The same of fine-tuned models, each program scored by one that has not seen it.
        scratch: The same of models without a source.
        valid_pca: Of the source, as `CostModel` has it.
    """
    if is_at_chance(valid_pca):
        return Decision(
            DROPPED,
            f"the source on programs of its own devices: PCA {valid_pca:.4f}, at least "
            f"{LEAST_VALID_PCA}; check its records, or train it on more",
        )
    if not len(source) or not source.mean() >= LEAST_SOURCE_PCA:
        found = f"PCA {source.mean():.4f}" if len(source) else "no pairs"
        return Decision(
            DROPPED, f"the source on the measured programs: {found}, at least {LEAST_SOURCE_PCA}"
        )
    gains = transfer - scratch
    error = float(gains.std(ddof=1)) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    kept = float(gains.mean()) > STANDARD_ERRORS * error
    return Decision(
        KEPT if kept else DROPPED,
        f"on the measured programs PCA {transfer.mean():.4f}, {scratch.mean():.4f} without a "
        f"source (standard error of the difference {error:.4f})",
    )
