"""The paper's tuner: a recurrent encoder of a program, and a memory of measured programs.

A bidirectional LSTM reads the sequence of a program. The rest is a matching network with
full-context embeddings (Vinyals et al. 2016), which is what the paper's words describe. Of the
measured programs of the support set three things are taken. The parametric head counts for as much
as it was right about them. What it missed of them is carried over to programs like them, by
regression on embeddings. And a second bidirectional LSTM reads them from the fastest to the
slowest; a query reads that memory with several attention heads for a few unrolled steps, and what
it read corrects the rest, for as much as that helped on the valid side. So new measurements change
predictions without a gradient step, and without any the head answers alone.

The head is one for all devices plus a correction for each device that was trained on. Devices are
told apart by their hardware vector; one that is missing has no correction.
"""

import copy
import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from hetfeat.features.batch import Batch, Examples
from hetfeat.models.base import OnEpoch
from hetfeat.models.early_stopping import EarlyStopping
from hetfeat.models.engines import net as nets
from hetfeat.models.engines import together
from hetfeat.models.engines.attention_net import AttentionNet
from hetfeat.models.engines.inputs import Scaling
from hetfeat.models.engines.losses import Targets, loss_of
from hetfeat.models.engines.net import NetOptions
from hetfeat.models.engines.on_workers import are_on_cluster
from hetfeat.models.engines.regression import BELIEF, correct_margins
from hetfeat.models.metrics import by_group, pairwise_accuracy
from hetfeat.models.neural import AttentionParameters
from hetfeat.models.training_set import Side

log = logging.getLogger(__name__)

DAMAGED = nets.DAMAGED

HEED = (0.0, 0.5, 1.0)
"""What the memory's correction may count for; the valid side chooses."""
_NOISE = (0.1, 0.3, 1.0)
"""Variance of a measured label that its program does not tell, over that which it tells."""


@dataclass(frozen=True)
class AttentionOptions(NetOptions):
    """How the network and its memory of measured programs compute.

    Attributes:
        most_support: Measured programs of a task that are read, the last ones given; 128 by
            default.
        shared_only: Share of training steps without the devices' corrections, so that the head
            stands alone; 0.3 by default.
        misled: How far the head is led astray for the memory at most, in training, over what its
            own margins spread; 1.5 by default: where it is always right, the labels of a support
            set add nothing and are not heeded.
        support_share: Largest share of a chunk that is support in training, so that queries are
            left; 0.5 by default.
        near: What the squared distance of two embeddings over the median one is worth in the
            regression; 2.0 by default.
        widest: Largest label in the memory; 4.0 by default: e^4 times faster than the others says
            no less than more would.
        belief: How much the head is believed, as `regression.corrected` says; 4.0 by default.
    """

    most_support: int = 128
    shared_only: float = 0.3
    misled: float = 1.5
    support_share: float = 0.5
    near: float = 2.0
    widest: float = 4.0
    belief: float = BELIEF

    @property
    def taught(self) -> float:
        """Measured programs that the memory learns to read; of more it counts for less."""
        return self.chunk * self.support_share


@dataclass(frozen=True)
class FittedAttention:
    """A network, how its inputs are scaled and how it computes."""

    net: AttentionNet
    scaling: Scaling
    options: AttentionOptions = AttentionOptions()

    def margins(self, batch: Batch, support: Examples | None) -> npt.NDArray[np.float64]:
        """The margin of each program.

        Args:
            batch: Programs whose margins are asked for: the queries.
            support: Measured programs. A query reads those of its own task on its own device, known
                by their features; the head alone answers where there are none, or where the
                measured ones are of two tasks with the same features.
        """
        with nets.torch_threads(self.options.threads), torch.no_grad():
            embedded, margins = self.embed(batch)
            if support is not None:
                _read_support(self, batch, support, embedded, margins)
        return np.asarray(margins.numpy(), np.float64)

    def embed(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Embeddings and margins without a memory of the programs of a batch."""
        inputs, device = self.scaling(batch), _rows_of(_hardware(batch), self.net.known)
        embedded = nets.once(self.net.encode, inputs, self.options)
        return embedded, self.net.answer(embedded, device)

    def write(self, folder: Path) -> None:
        """Writes weights and scaling."""
        (folder / nets.WEIGHTS).write_bytes(nets.packed(self.net, self.scaling))

    def importance(self) -> dict[str, float]:
        """Nothing: a network splits on no column."""
        return {}


def train(
    settings: AttentionParameters,
    train: Side,
    valid: Side,
    on_epoch: OnEpoch | None,
    options: AttentionOptions = AttentionOptions(),
) -> FittedAttention:
    """Descends until the valid side improves no more, judged without a support set.

    On a cluster, all workers do so together.
    """
    if not are_on_cluster(train):
        return _trained(settings, options, train, valid, on_epoch)
    alone = partial(_trained, settings)
    weights = nets.trained_on_workers(alone, options, train, valid, on_epoch)
    return replace(_fitted(settings, *weights), options=options)


def _trained(
    settings: AttentionParameters,
    options: AttentionOptions,
    train: Side,
    valid: Side,
    on_epoch: OnEpoch | None,
) -> FittedAttention:
    watch = EarlyStopping(valid, settings.point_weight, settings.patience, on_epoch)
    batch, check = train.examples.batch.loaded(), valid.examples.batch.loaded()
    scaling = Scaling.of(batch)
    with nets.torch_threads(options.threads), nets.seeded(settings.seed):
        devices = torch.unique(torch.cat(together.of_all(_hardware(batch))), dim=0)
        net = AttentionNet(settings, scaling.step_width, devices)
        fitted = FittedAttention(net, scaling, options)
        best = nets.Best(net, watch, lambda: fitted.margins(check, None), settings.average)
        _descend(settings, net, list(net.parameters()), scaling, train, best, options)
        best.restore()
    _choose_heed(fitted, valid, settings.seed)
    return fitted


def _choose_heed(fitted: FittedAttention, valid: Side, seed: int) -> None:
    """Sets what orders one half of each valid task best, the other half measured."""
    rng = np.random.default_rng(seed)
    halves = []
    for rows in by_group(valid.groups):
        drawn = rng.permutation(rows)
        support, asked = (valid.examples.take(part) for part in np.split(drawn, [len(rows) // 2]))
        halves.append((asked, support if len(support) else None))
    latency_s = np.concatenate([asked.latency_s for asked, _ in halves])
    groups = np.repeat(np.arange(len(halves)), [len(asked) for asked, _ in halves])

    def accuracy(heed: float) -> float:
        fitted.net.heed.fill_(heed)
        margins = [fitted.margins(asked.batch.loaded(), known) for asked, known in halves]
        return pairwise_accuracy(np.concatenate(margins), latency_s, groups).value

    found = {heed: accuracy(heed) for heed in HEED}
    fitted.net.heed.fill_(max(HEED, key=found.__getitem__))
    said = ", ".join(f"{heed:g} gives {pca:.4f}" for heed, pca in found.items())
    log.info("the memory counts for %g: on the valid side %s", float(fitted.net.heed), said)


def fine_tune(
    settings: AttentionParameters, fitted: FittedAttention, records: Side
) -> FittedAttention:
    """A few epochs on other records; the heads change, with one more for a new device."""
    net = copy.deepcopy(fitted.net)
    devices = torch.unique(_hardware(records.examples.batch.loaded()), dim=0)
    new = devices[_rows_of(devices, net.known) < 0]
    net.known = torch.cat([net.known, new])
    heads = torch.cat([net.device_heads.data, torch.zeros(len(new), settings.width + 1)])
    net.device_heads = nn.Parameter(heads)
    options = fitted.options
    with nets.torch_threads(options.threads), nets.seeded(settings.seed):
        _descend(settings, net, net.last_block(), fitted.scaling, records, None, options)
    return FittedAttention(net, fitted.scaling, options)


def read(folder: Path, files: set[str], settings: AttentionParameters) -> FittedAttention:
    """The network of a folder."""
    return _fitted(settings, *nets.read_weights(folder, files))


def _fitted(
    settings: AttentionParameters, weights: dict[str, torch.Tensor], scaling: Scaling
) -> FittedAttention:
    net = AttentionNet(settings, scaling.step_width, weights["known"])
    net.load_state_dict(weights)
    return FittedAttention(net.eval(), scaling)


def _descend(
    settings: AttentionParameters,
    net: AttentionNet,
    parameters: list[nn.Parameter],
    scaling: Scaling,
    side: Side,
    best: nets.Best | None,
    options: AttentionOptions,
) -> None:
    inputs, targets = scaling(side.examples.batch.loaded()), nets.targets_of(side)
    device = _rows_of(_hardware(side.examples.batch.loaded()), net.known)
    rng = np.random.default_rng(together.own_seed(settings.seed))
    trunk = None if best else nets.once(net.trunk, inputs, options)

    def loss(positions: torch.Tensor, chunk: torch.Tensor) -> torch.Tensor:
        given = net.trunk(inputs.take(positions)) if trunk is None else trunk[positions]
        embedded = net.embedding(given)
        own = device[positions]
        if best and rng.random() < options.shared_only:
            own = torch.full_like(own, -1)
        margins = net.answer(embedded, own)
        wanted = targets.take(positions)
        return loss_of(margins, wanted, chunk, settings) + _recalled_loss(
            settings, net, embedded, margins, wanted, chunk, rng, options
        )

    nets.descend(net, parameters, settings, side, loss, best, options)


def _recalled_loss(
    settings: AttentionParameters,
    net: AttentionNet,
    embedded: torch.Tensor,
    margins: torch.Tensor,
    targets: Targets,
    chunk: torch.Tensor,
    rng: np.random.Generator,
    options: AttentionOptions,
) -> torch.Tensor:
    """The loss with a part of each chunk, at random, as the support set of the rest.

    The programs of a chunk lie together and in random order.
    """
    support, asked, heads = [], [], []
    for rows in torch.arange(len(chunk)).split(torch.bincount(chunk).tolist()):
        measured = max(1, int(rng.uniform(0, options.support_share) * len(rows)))
        if measured < len(rows):
            said = margins[rows] + _misled(embedded[rows], margins[rows], rng, options.misled)
            first, slow = rows[:measured], targets.slowness[rows[:measured]]
            known = _memory(embedded[first], said[:measured], slow, options)
            support.append(known)
            asked.append(rows[measured:])
            heads.append(known.answer(embedded[rows[measured:]], said[measured:]))
    if not asked:
        return torch.zeros(())
    corrections = net.recall(
        pad_sequence([embedded[rows] for rows in asked], batch_first=True),
        pad_sequence([known.vectors for known in support], batch_first=True),
        pad_sequence([known.labels for known in support], True, float("nan")),
    )
    flat = torch.cat([row[: len(rows)] for row, rows in zip(corrections, asked, strict=True)])
    queries = torch.cat(asked)
    return loss_of(torch.cat(heads) + flat, targets.take(queries), chunk[queries], settings)


def _misled(
    embedded: torch.Tensor, margins: torch.Tensor, rng: np.random.Generator, most: float
) -> torch.Tensor:
    """What a head that is wrong in a direction of its own would say beside what ours says."""
    direction = torch.from_numpy(rng.normal(size=embedded.shape[1])).float()
    astray = (embedded @ direction).detach()
    share = rng.uniform(0, most) * margins.detach().std(unbiased=False)
    return (astray - astray.mean()) / astray.std(unbiased=False).clamp_min(1e-6) * share


@dataclass(frozen=True)
class _Memory:
    """Measured programs of a task, from the fastest to the slowest.

    Attributes:
        vectors: Embeddings of the programs, float32 [s, width].
        labels: Speed, what the head said and whether it failed, of each program, float32 [s, 3].
        trust: Slope, float32 [], of measured speeds over what the head said, drawn to 1 by
            `belief`: the weight of what it says of others, negative where it was wrong.
        near: What the squared distance of two embeddings over the median one is worth.
    """

    vectors: torch.Tensor
    labels: torch.Tensor
    trust: torch.Tensor
    near: float

    def answer(self, queries: torch.Tensor, margins: torch.Tensor) -> torch.Tensor:
        """Margins of queries in training: a plainer `regression.correct_margins` with gradients.

        The length is the median distance between measured programs, and values are logarithms.
        """
        missed = self.labels[:, 0] - self.trust * self.labels[:, 1]
        apart = torch.cdist(self.vectors, self.vectors).square()
        typical = apart[apart > 0].median() if (apart > 0).any() else torch.ones(())
        alike = torch.exp(-self.near * apart / typical)
        weights, least = torch.zeros_like(missed), missed.square().sum()
        for noise in _NOISE:
            inverse = torch.linalg.inv(alike + noise * torch.eye(len(missed)))
            told = inverse @ missed
            left_out = (told / inverse.diagonal()).square().sum()
            if left_out < least:
                weights, least = told, left_out
        near = torch.exp(-self.near * torch.cdist(queries, self.vectors).square() / typical)
        return margins * self.trust + near @ weights


def _memory(
    vectors: torch.Tensor,
    margins: torch.Tensor,
    slowness: torch.Tensor,
    options: AttentionOptions = AttentionOptions(),
) -> _Memory:
    widest, belief = options.widest, options.belief
    order = torch.argsort(slowness, stable=True)
    vectors, slow, said = vectors[order], slowness[order], margins[order].detach()
    failed = torch.isinf(slow)
    middle = slow[~failed].mean() if (~failed).any() else torch.zeros(())
    speed = torch.where(failed, -widest, middle - slow)
    labels = torch.stack([speed, said - said.mean(), failed.float()], 1).clamp(-widest, widest)
    fast, told = labels[:, 0], labels[:, 1]
    trust = ((fast - fast.mean()) @ told + belief) / (told @ told + belief)
    return _Memory(vectors, labels, trust, options.near)


def _read_support(
    fitted: FittedAttention,
    batch: Batch,
    support: Examples,
    embedded: torch.Tensor,
    margins: torch.Tensor,
) -> None:
    """Corrects, in place, the margins of the queries whose task has measured programs."""
    net, options = fitted.net, fitted.options
    vectors, said = fitted.embed(support.batch.loaded())
    slowness = torch.tensor(np.log(np.nan_to_num(support.latency_s, nan=np.inf))).float()
    measured: dict[bytes, list[int]] = {}
    for i, key in enumerate(_keys(support.batch.loaded())):
        measured.setdefault(key, []).append(i)
    measured = {key: own for key, own in measured.items() if len(set(support.task[own])) == 1}
    asked: dict[bytes, list[int]] = {}
    for i, key in enumerate(_keys(batch)):
        if key in measured:
            asked.setdefault(key, []).append(i)
    for key, queries in asked.items():
        rows = torch.tensor(measured[key][-options.most_support :])
        known, own = _memory(vectors[rows], said[rows], slowness[rows], options), embedded[queries]
        given = (margins[queries], own, said[rows], vectors[rows], slowness[rows])
        told = correct_margins(
            *(tensor.double().numpy() for tensor in given), belief=options.belief
        )
        margins[queries] = torch.from_numpy(told).float()
        if net.heed:
            corrections = net.recall(own[None], known.vectors[None], known.labels[None])
            share = min(1.0, options.taught / len(rows))
            margins[queries] += net.heed * share * corrections[0]


def _keys(batch: Batch) -> list[bytes]:
    """What tells tasks and devices apart, of each program."""
    both = np.concatenate([batch.task, batch.hardware], axis=1)
    return [row.tobytes() for row in both]


def _hardware(batch: Batch) -> torch.Tensor:
    return torch.from_numpy(np.nan_to_num(batch.hardware, nan=-1.0))


def _rows_of(hardware: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    """Row of `known` that each hardware vector equals, -1 where there is none, int64 [n]."""
    same = (hardware[:, None, :] == known[None, :, :]).all(2)
    found = torch.full((len(hardware),), -1)
    rows, columns = torch.nonzero(same, as_tuple=True)
    found[rows] = columns
    return found
