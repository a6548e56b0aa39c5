"""A network that encodes each store, sums over the stores of a program and refines the sum.

TenSet's: layers of one width, two of them over a store and two residual ones over the sum. Task
and hardware join at the first layer, where a store can be judged by them.
"""

import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from hetfeat.features.batch import Batch, Examples
from hetfeat.models.base import OnEpoch
from hetfeat.models.early_stopping import EarlyStopping
from hetfeat.models.engines import net as nets
from hetfeat.models.engines.inputs import CONTEXT_WIDTH, Inputs, Scaling
from hetfeat.models.engines.losses import loss_of
from hetfeat.models.engines.net import NetOptions
from hetfeat.models.engines.on_workers import are_on_cluster
from hetfeat.models.neural import MlpParameters
from hetfeat.models.training_set import Side

DAMAGED = nets.DAMAGED


class MlpNet(nn.Module):
    """Margins of programs."""

    def __init__(self, width: int, step_width: int) -> None:
        super().__init__()
        self.step = nn.Linear(step_width, width)
        self.context = nn.Linear(CONTEXT_WIDTH, width)
        self.encode = nn.Linear(width, width)
        self.refine = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.out = nn.Linear(width, 1)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        """Float32 [n]."""
        return self.score(self.trunk(inputs))

    def trunk(self, inputs: Inputs) -> torch.Tensor:
        """What margins are made of, and fine-tuning does not change, float32 [n, width]."""
        program = inputs.program
        # The first layer of steps and context side by side, each context multiplied once.
        stores = torch.relu(self.step(inputs.steps) + self.context(inputs.context)[program])
        stores = torch.relu(self.encode(stores))
        total = torch.zeros(len(inputs), stores.shape[1]).index_add(0, program, stores)
        return total + torch.relu(self.refine[0](total))

    def score(self, trunk: torch.Tensor) -> torch.Tensor:
        """Margins, float32 [n], of what the trunk gave."""
        margins: torch.Tensor = self.out(trunk + torch.relu(self.refine[1](trunk))).squeeze(1)
        return margins

    def last_block(self) -> list[nn.Parameter]:
        """What fine-tuning changes."""
        return [*self.refine[1].parameters(), *self.out.parameters()]


@dataclass(frozen=True)
class FittedMlp:
    """A network, how its inputs are scaled and how it computes."""

    net: MlpNet
    scaling: Scaling
    options: NetOptions = NetOptions()

    def margins(self, batch: Batch, support: Examples | None) -> npt.NDArray[np.float64]:
        """The margin of each program; a support set is not used."""
        with nets.torch_threads(self.options.threads), torch.no_grad():
            return _margins(self.net, self.scaling(batch), self.options)

    def write(self, folder: Path) -> None:
        """Writes weights and scaling."""
        (folder / nets.WEIGHTS).write_bytes(nets.packed(self.net, self.scaling))

    def importance(self) -> dict[str, float]:
        """Nothing: a network splits on no column."""
        return {}


def train(
    settings: MlpParameters,
    train: Side,
    valid: Side,
    on_epoch: OnEpoch | None,
    options: NetOptions = NetOptions(),
) -> FittedMlp:
    """Descends until the valid side improves no more; on a cluster, all workers do so together."""
    if not are_on_cluster(train):
        return _trained(settings, options, train, valid, on_epoch)
    alone = partial(_trained, settings)
    weights = nets.trained_on_workers(alone, options, train, valid, on_epoch)
    return replace(_fitted(settings, *weights), options=options)


def _trained(
    settings: MlpParameters,
    options: NetOptions,
    train: Side,
    valid: Side,
    on_epoch: OnEpoch | None,
) -> FittedMlp:
    watch = EarlyStopping(valid, settings.point_weight, settings.patience, on_epoch)
    scaling = Scaling.of(train.examples.batch.loaded())
    check = scaling(valid.examples.batch.loaded())
    with nets.torch_threads(options.threads), nets.seeded(settings.seed):
        net = MlpNet(settings.width, scaling.step_width)
        best = nets.Best(net, watch, lambda: _margins(net, check, options), settings.average)
        _descend(settings, net, list(net.parameters()), scaling, train, best, options)
        best.restore()
    return FittedMlp(net, scaling, options)


def fine_tune(settings: MlpParameters, fitted: FittedMlp, records: Side) -> FittedMlp:
    """A few epochs on other records; only the last block changes."""
    net = copy.deepcopy(fitted.net)
    options = fitted.options
    with nets.torch_threads(options.threads), nets.seeded(settings.seed):
        _descend(settings, net, net.last_block(), fitted.scaling, records, None, options)
    return FittedMlp(net, fitted.scaling, options)


def read(folder: Path, files: set[str], settings: MlpParameters) -> FittedMlp:
    """The network of a folder."""
    return _fitted(settings, *nets.read_weights(folder, files))


def _fitted(
    settings: MlpParameters, weights: dict[str, torch.Tensor], scaling: Scaling
) -> FittedMlp:
    net = MlpNet(settings.width, scaling.step_width)
    net.load_state_dict(weights)
    return FittedMlp(net.eval(), scaling)


def _descend(
    settings: MlpParameters,
    net: MlpNet,
    parameters: list[nn.Parameter],
    scaling: Scaling,
    side: Side,
    best: "nets.Best | None",
    options: NetOptions,
) -> None:
    inputs, targets = scaling(side.examples.batch.loaded()), nets.targets_of(side)
    trunk = None if best else nets.once(net.trunk, inputs, options)

    def loss(positions: torch.Tensor, chunk: torch.Tensor) -> torch.Tensor:
        given = net.trunk(inputs.take(positions)) if trunk is None else trunk[positions]
        return loss_of(net.score(given), targets.take(positions), chunk, settings)

    nets.descend(net, parameters, settings, side, loss, best, options)


def _margins(net: MlpNet, inputs: Inputs, options: NetOptions) -> npt.NDArray[np.float64]:
    return np.asarray(nets.once(net, inputs, options).numpy(), np.float64)
