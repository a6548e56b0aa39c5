"""Neural cost models: a multi-layer perceptron over stores, and the paper's attention tuner."""

from dataclasses import dataclass
from typing import Any, ClassVar

from hetfeat.errors import RequestError
from hetfeat.models.engine_model import EngineModel


@dataclass(frozen=True)
class MlpParameters:
    """Hyperparameters of `mlp`; widths and batch are TenSet's.

    Attributes:
        rounds: Most epochs; 100 by default.
        patience: Epochs without a lower loss on the valid side before training ends; 25 by default.
        batch: Chunks a step, each of some programs of one task on one device (`net.NetOptions`); 16
            by default.
        learning_rate: Step size of Adam, falling to zero as a cosine; 7e-4 by default.
        weight_decay: Weight decay of Adam; 1e-6 by default.
        average: Decay of the average of the weights that is kept, each step; 0.995 by default, 0
            for the weights of the last step.
        width: Width of every layer; 256 by default.
        point_weight: Share of the loss that is the squared error of y, the rest ranks; 0.5 by
            default.
        lambda_rank: Whether a pair is weighed by what its order is worth to the discounted gain;
            false by default.
        fine_tune_rounds: Epochs over the records of another device; 30 by default.
        fine_tune_rate: Learning rate of fine-tuning; 1e-3 by default.
        seed: Seed of the weights and of the order; 0 by default.
    """

    rounds: int = 100
    patience: int = 25
    batch: int = 16
    learning_rate: float = 7e-4
    weight_decay: float = 1e-6
    average: float = 0.995
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
        rounds: Most epochs; 200 by default.
        patience: Epochs without a lower loss on the valid side before training ends; 40 by default.
        batch: Chunks a step, each of some programs of one task on one device (`net.NetOptions`); 16
            by default.
        learning_rate: Step size of Adam, falling to zero as a cosine; 1e-3 by default.
        weight_decay: Weight decay of Adam; 1e-6 by default.
        average: Decay of the average of the weights that is kept, each step; 0.0, the default, for
            the weights of the last step.
        layers: Layers of the bidirectional LSTM over a program's sequence; 3 by default.
        width: Width of an embedding, half of it for each direction; 128 by default.
        heads: Attention heads over the support set; 2 by default.
        unrolling: Steps in which a query reads the support set; 2 by default.
        point_weight: Share of the loss that is the squared error of y, the rest ranks; 0.5 by
            default.
        lambda_rank: Whether a pair is weighed by what its order is worth to the discounted gain;
            false by default.
        fine_tune_rounds: Epochs over the records of another device; 30 by default.
        fine_tune_rate: Learning rate of fine-tuning; 1e-3 by default.
        seed: Seed of the weights, of the order and of the support sets; 0 by default.
    """

    rounds: int = 200
    patience: int = 40
    batch: int = 16
    learning_rate: float = 1e-3
    weight_decay: float = 1e-6
    average: float = 0.0
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
    reads_support = True

    @property
    def chosen(self) -> dict[str, float]:
        """How much the memory's correction counts for, from nothing to whole."""
        fitted: Any = self.fitted()
        return {"heed": float(fitted.net.heed)}
