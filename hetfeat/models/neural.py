"""Neural cost models: a multi-layer perceptron over stores, and the paper's attention tuner."""

from dataclasses import dataclass
from typing import ClassVar

from hetfeat.errors import RequestError
from hetfeat.models.engine_model import EngineModel


@dataclass(frozen=True)
class MlpParameters:
    """Hyperparameters of `mlp`; widths and batch are TenSet's.

    Attributes:
        rounds: Epochs at most.
        patience: Epochs without a lower loss on the valid side before training ends.
        batch: Chunks a step, each of at most `net.CHUNK` programs of one task on one device.
        learning_rate: Of Adam, falling to zero as a cosine.
        weight_decay: Of Adam.
        width: Of every layer.
        point_weight: Share of the loss that is the squared error of y; the rest ranks.
        lambda_rank: Weigh a pair by what its order is worth to the discounted gain.
        fine_tune_rounds: Epochs over the records of another device.
        fine_tune_rate: Learning rate of fine-tuning.
        seed: Of weights and order.
    """

    rounds: int = 100
    patience: int = 25
    batch: int = 16
    learning_rate: float = 7e-4
    weight_decay: float = 1e-6
    width: int = 256
    point_weight: float = 0.5
    lambda_rank: bool = False
    fine_tune_rounds: int = 30
    fine_tune_rate: float = 1e-3
    seed: int = 0


@dataclass(frozen=True)
class AttentionParameters:
    """Hyperparameters of `attention`; the defaults are those of the paper's Table 4 and text.

    Attributes:
        rounds: Epochs at most.
        patience: As in `MlpParameters`.
        batch: As in `MlpParameters`.
        learning_rate: Of Adam, falling to zero as a cosine.
        weight_decay: Of Adam.
        layers: Of the bidirectional LSTM over a program's sequence.
        width: Of an embedding; half of it for each direction.
        heads: Attention heads over the support set.
        unrolling: Steps in which a query reads the support set.
        point_weight: As in `MlpParameters`.
        lambda_rank: As in `MlpParameters`.
        fine_tune_rounds: Epochs over the records of another device.
        fine_tune_rate: Learning rate of fine-tuning.
        seed: Of weights, order and support sets.
    """

    rounds: int = 200
    patience: int = 40
    batch: int = 16
    learning_rate: float = 1e-3
    weight_decay: float = 1e-6
    layers: int = 3
    width: int = 128
    heads: int = 2
    unrolling: int = 2
    point_weight: float = 0.5
    lambda_rank: bool = False
    fine_tune_rounds: int = 30
    fine_tune_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses a width that directions and heads cannot share.

        Raises:
            RequestError: It is odd, or the heads do not divide it.
        """
        if self.width % 2 or self.width % self.heads:
            raise RequestError(
                f"width {self.width} with {self.heads} heads",
                "an even width that the heads divide",
                "change one of them",
            )


class MlpModel(EngineModel):
    """A cost model that encodes each store, sums over stores and refines the sum."""

    name = "mlp"
    engine = "hetfeat.models.engines.mlp"
    packages = ("torch", "safetensors")
    defaults = MlpParameters()
    rounds: ClassVar = {"quick": 20, "standard": 100, "full": 200}


class AttentionModel(EngineModel):
    """A cost model that reads measured programs of the same task beside the one it scores."""

    name = "attention"
    engine = "hetfeat.models.engines.attention"
    packages = ("torch", "safetensors")
    defaults = AttentionParameters()
    rounds: ClassVar = {"quick": 40, "standard": 200, "full": 400}
