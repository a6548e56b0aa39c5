"""Whether a source model helps on a device: decided before anything is tested."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetfeat.models.base import CostModel

Floats = npt.NDArray[np.float64]

KEPT, DROPPED = "kept", "dropped"


@dataclass(frozen=True)
class GateOptions:
    """When a source is kept.

    How far a source that knows nothing comes on the valid side of its training depends on how many
    tasks and programs that side has: `models.chance` says it. On the measured programs a coin has
    0.5. Sources with shuffled labels reached 0.52 there, and fine-tuned for long enough
    they were as good as no source, which is luck to tell from better.

    Attributes:
        chance_errors: Standard errors of chance by which the PCA of a source on the valid side of
            its own devices exceeds 0.5, default 2.5: one in 160 that know nothing comes to it.
        least_source_pca: Lowest PCA of a source on the measured programs, default 0.55.
        standard_errors: Standard errors over tasks by which the gain over no source exceeds zero,
            default 2.
    """

    chance_errors: float = 2.5
    least_source_pca: float = 0.55
    standard_errors: float = 2.0


DEFAULT_GATE = GateOptions()


@dataclass(frozen=True)
class OwnSide:
    """How a source orders the valid side of its own training.

    Attributes:
        pca: PCA of the source there, as `CostModel.valid_pca`.
        chance_error: Standard error of chance there, as `CostModel.chance_error`.
    """

    pca: float
    chance_error: float

    @classmethod
    def of(cls, source: CostModel) -> "OwnSide | None":
        """That of a source; None for one that does not know, as one that was saved by old code."""
        pca, error = source.valid_pca, source.chance_error
        return None if pca is None or error is None else cls(pca, error)

    def least(self, options: GateOptions = DEFAULT_GATE) -> float:
        """PCA under which it may be one that knows nothing."""
        return 0.5 + options.chance_errors * self.chance_error

    def is_at_chance(self, options: GateOptions = DEFAULT_GATE) -> bool:
        """Whether it has nothing to transfer."""
        return self.pca < self.least(options)


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
    own: OwnSide | None = None,
    options: GateOptions = DEFAULT_GATE,
) -> Decision:
    """Drops a source that orders the device's programs hardly better than chance or no source.

    Args:
        source: PCA of the source model, unchanged, on the measured programs of each task, float64
            [tasks].
        transfer: PCA of fine-tuned models on the same, float64 [tasks]; each program is scored by a
            model that has not seen it.
        scratch: PCA of models without a source on the same, float64 [tasks].
        own: How the source orders its own valid side; default None where that is not known.
        options: Thresholds of the decision, default `DEFAULT_GATE`.
    """
    if own is not None and own.is_at_chance(options):
        return Decision(
            DROPPED,
            f"the source on programs of its own devices: PCA {own.pca:.4f}, at least "
            f"{own.least(options):.4f} where chance is told from knowledge; check its records, or "
            "train it on more",
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
