"""How a network is trained, kept and read back, whatever it looks like inside."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn
from torch.optim.swa_utils import AveragedModel

from hetfeat.models.base import OnEpoch
from hetfeat.models.early_stopping import EarlyStopping
from hetfeat.models.engines import together
from hetfeat.models.engines.inputs import Inputs, Scaling
from hetfeat.models.engines.losses import Targets
from hetfeat.models.engines.on_workers import train_on_workers
from hetfeat.models.metrics import by_group
from hetfeat.models.training_set import Side

WEIGHTS = "weights.safetensors"
DAMAGED: tuple[type[Exception], ...] = (SafetensorError, RuntimeError)
"""RuntimeError: weights of another shape."""


@dataclass(frozen=True)
class NetOptions:
    """How a network computes; not its hyperparameters, which are kept with it.

    Attributes:
        chunk: Most programs of a task that are compared in one step; 32 by default: 16 tasks of 32
            are TenSet's batch of 512.
        threads: Most threads; 2 by default: more do not help matrices this small.
        scored_at_once: Programs scored at once; 512 by default: their activations fit in caches.
        steepest: Largest norm of a step's gradient; 1.0 by default.
    """

    chunk: int = 32
    threads: int = 2
    scored_at_once: int = 512
    steepest: float = 1.0


@contextmanager
def torch_threads(most: int = NetOptions.threads) -> Iterator[None]:
    """So many threads at most for the length of the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(most, before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's random numbers from a seed for the length of the block, and as before after it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def targets_of(side: Side) -> Targets:
    """The labels of a side as tensors."""
    slowness = np.log(np.nan_to_num(side.examples.latency_s, nan=np.inf))
    return Targets(
        torch.tensor(side.y, dtype=torch.float32),
        torch.tensor(slowness, dtype=torch.float32),
    )


def steps_of(
    groups: npt.NDArray[np.int64],
    tasks: int,
    rng: np.random.Generator,
    most: int = NetOptions.chunk,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """An epoch: every program once, in steps of `tasks` chunks at most that never mix groups.

    A chunk has `most` programs at most. Where several processes train together, a step has `tasks`
    chunks of all of them, and all take as many steps: one may have none left for some.

    Yields:
        Positions of the programs of a step, and the chunk each belongs to, both int64.
    """
    chunks = []
    for rows in by_group(groups):
        shuffled = rng.permutation(rows)
        chunks += np.array_split(shuffled, -(-len(rows) // most))
    steps = -(-sum(together.of_all(len(chunks))) // tasks)
    for taken in np.array_split(rng.permutation(len(chunks)), steps):
        chosen = [np.empty(0, np.int64), *(chunks[i] for i in taken)]
        chunk = np.repeat(np.arange(len(chosen)) - 1, [len(rows) for rows in chosen])
        yield torch.from_numpy(np.concatenate(chosen)), torch.from_numpy(chunk)


class Best:
    """Keeps the averaged weights of the epoch that was best on the valid side.

    Where several processes train together, they stop when the first one does.

    Args:
        net: Network that is trained.
        watch: Judge of the valid side.
        margins: Function that gives the network's margins of the valid side.
        average: Decay of the average over steps, less in the first ones (`_averaging`); 0 for the
            weights as they are.
    """

    def __init__(
        self,
        net: nn.Module,
        watch: EarlyStopping,
        margins: Callable[[], npt.NDArray[np.float64]],
        average: float,
    ) -> None:
        self._net, self._watch, self._margins = net, watch, margins
        self._averaged = AveragedModel(net, multi_avg_fn=_averaging(average))
        self._weights = _copied(net)

    def follow(self) -> None:
        """Takes a step's weights into the average."""
        self._averaged.update_parameters(self._net)

    def is_over(self, epoch: int) -> bool:
        """Whether to stop after this epoch."""
        own = _copied(self._net)
        self._net.load_state_dict(self._averaged.module.state_dict())
        over = self._watch.is_over(epoch, self._margins())
        if self._watch.best_epoch == epoch:
            self._weights = _copied(self._net)
        self._net.load_state_dict(own)
        return together.of_first(over)

    def restore(self) -> None:
        """Gives the network its best weights."""
        self._net.load_state_dict(self._weights)


def _averaging(decay: float) -> Callable[[Any, Any, Any], None]:
    """How weights enter their average: the first steps, which are far from the last, soon leave it.

    That is the decay of TensorFlow's ExponentialMovingAverage with `num_updates`.
    """

    @torch.no_grad()
    def update(averages: Any, weights: Any, count: Any) -> None:
        own = min(decay, (1 + int(count)) / (10 + int(count)))
        for average, weight in zip(averages, weights, strict=True):
            average.lerp_(weight, 1 - own)

    return update


def _copied(net: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def descend(
    net: nn.Module,
    parameters: list[nn.Parameter],
    settings: Any,
    side: Side,
    step_loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    best: Best | None,
    options: NetOptions = NetOptions(),
) -> None:
    """Adam with a rate that falls as a cosine, of the gradients of all that train together.

    Args:
        net: Network whose parameters change; left in evaluation mode.
        parameters: Parameters that change.
        settings: Hyperparameters of the model.
        side: Examples that are learnt from.
        step_loss: Loss of the programs at some positions, given the chunk of each.
        best: Judge of each epoch that ends the training early; None for a fine-tuning.
        options: Size of a chunk, and largest gradient; those of `NetOptions` by default.
    """
    epochs = settings.rounds if best else settings.fine_tune_rounds
    rate = settings.learning_rate if best else settings.fine_tune_rate
    rng = np.random.default_rng(together.own_seed(settings.seed))
    averaged_loss = together.averaged(net, step_loss)
    optimiser = torch.optim.AdamW(parameters, rate, weight_decay=settings.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(1, epochs))
    for epoch in range(epochs):
        net.train()
        for positions, chunk in steps_of(side.groups, settings.batch, rng, options.chunk):
            optimiser.zero_grad()
            averaged_loss(positions, chunk).backward()
            nn.utils.clip_grad_norm_(parameters, options.steepest)
            optimiser.step()
            if best:
                best.follow()
        schedule.step()
        net.eval()
        if best and best.is_over(epoch):
            return


def in_parts(count: int, most: int = NetOptions.scored_at_once) -> Iterator[torch.Tensor]:
    """Positions 0 to `count`, `most` at a time."""
    return iter(torch.arange(count).split(most)) if count else iter(())


def once(
    layers: Callable[[Inputs], torch.Tensor], inputs: Inputs, options: NetOptions
) -> torch.Tensor:
    """What layers that are not to change make of all programs, a part at a time."""
    parts = in_parts(len(inputs), options.scored_at_once)
    with torch.no_grad():
        return torch.cat([layers(inputs.take(part)) for part in parts])


def trained_on_workers(
    alone: Callable[[Any, Side, Side, OnEpoch | None], Any],
    options: NetOptions,
    train: Side,
    valid: Side,
    on_epoch: OnEpoch | None,
) -> tuple[dict[str, torch.Tensor], Scaling]:
    """Weights and scaling of a network that all workers of a cluster train together.

    Args:
        alone: Function that trains in one process, of `options` and the arguments after it.
        options: How the network computes; threads at most those of a worker.
        train: Examples that are learnt from, on a cluster.
        valid: Examples that end the training, there as well.
        on_epoch: Function told of each epoch once all are done; None for none.

    Raises:
        WorkFailed: A worker was lost.
    """
    there = partial(_trained_there, alone, options)
    return unpacked(train_on_workers(train, valid, on_epoch, together.meet, there))


def _trained_there(
    alone: Callable[[Any, Side, Side, OnEpoch | None], Any],
    options: NetOptions,
    met: together.Meeting,
    threads: int,
    train: Side,
    valid: Side,
    on_epoch: OnEpoch | None,
) -> bytes:
    """A worker's part: the same as alone, but that it steps with the others."""
    own = replace(options, threads=min(options.threads, threads))
    with together.in_group(met):
        fitted = alone(own, train, valid, on_epoch)
    return packed(fitted.net, fitted.scaling)


def packed(net: nn.Module, scaling: Scaling) -> bytes:
    """Weights and scaling as the bytes of safetensors."""
    tensors = {**net.state_dict(), **scaling.tensors}
    return save({name: tensor.contiguous() for name, tensor in tensors.items()})


def unpacked(raw: bytes) -> tuple[dict[str, torch.Tensor], Scaling]:
    """The weights that were packed, and the scaling among them.

    Raises:
        SafetensorError: They are none.
        KeyError: They have no scaling.
    """
    weights: dict[str, torch.Tensor] = load(raw)
    return weights, Scaling({name: weights.pop(name) for name in Scaling.NAMES})


def read_weights(folder: Path, files: set[str]) -> tuple[dict[str, torch.Tensor], Scaling]:
    """The weights of a folder, and the scaling that was written among them."""
    if WEIGHTS not in files:
        raise KeyError(WEIGHTS)
    return unpacked((folder / WEIGHTS).read_bytes())
