"""The paper's tuner: a recurrent encoder of a program, and a memory of measured programs.

A bidirectional LSTM reads the sequence of a program. The rest is a matching network with
full-context embeddings (Vinyals et al. 2016), which is what the paper's words describe: a second
bidirectional LSTM reads the measured programs of the support set from the fastest to the slowest;
a query then reads that memory with several attention heads for a few unrolled steps. What it read
corrects the margin of the parametric head. So new measurements change predictions without a
gradient step, and without any the head answers alone.

The head is one for all devices plus a correction for each device that was trained on. Devices are
told apart by their hardware vector; one that is missing has no correction.
"""

import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from hetfeat.features.batch import Batch, Examples
from hetfeat.models.base import OnEpoch
from hetfeat.models.engines import net as nets
from hetfeat.models.engines.inputs import CONTEXT_WIDTH, STORE_WIDTH, Inputs, Scaling
from hetfeat.models.engines.losses import Targets, loss_of
from hetfeat.models.nets import AttentionParameters
from hetfeat.models.side import Side
from hetfeat.models.watch import Watch

DAMAGED = nets.DAMAGED

MOST_SUPPORT = 64
"""Measured programs of a task that are read, the last ones given."""
_SHARED_ONLY = 0.3
"""Share of training steps without the devices' corrections, so that the head stands alone."""
_SUPPORT_SHARE = 0.5
"""Of a chunk in training at most, so that queries are left."""
_LABELS = 3
"""What the memory knows of a measured program: its speed, what the head said, whether it failed."""
_WIDEST = 4.0


class AttentionNet(nn.Module):
    """Margins of programs, with a memory of measured ones or without.

    Attributes:
        known: Hardware vectors of the devices with a correction, float32 [d, h], -1 for NaN.
    """

    known: torch.Tensor

    def __init__(self, settings: AttentionParameters, known: torch.Tensor) -> None:
        super().__init__()
        width, half = settings.width, settings.width // 2
        self.unrolling = settings.unrolling
        self.register_buffer("known", known)
        self.step = nn.Linear(STORE_WIDTH, width)
        self.context = nn.Linear(CONTEXT_WIDTH, width)
        self.sequence = nn.LSTM(width, half, settings.layers, batch_first=True, bidirectional=True)
        self.embed = nn.Linear(width, width)
        self.head = nn.Linear(width, 1)
        self.device_heads = nn.Parameter(torch.zeros(len(known), width + 1))
        self.memory = nn.LSTM(width + _LABELS, half, batch_first=True, bidirectional=True)
        self.remember = nn.Linear(width + _LABELS, width)
        self.cell = nn.LSTMCell(2 * width, width)
        self.attend = nn.MultiheadAttention(width, settings.heads, batch_first=True)
        self.correct = nn.Linear(2 * width, 1)

    def encode(self, inputs: Inputs) -> torch.Tensor:
        """Embeddings, float32 [n, width]."""
        program = inputs.program
        steps = torch.relu(self.step(inputs.steps) + self.context(inputs.context)[program])
        lengths = inputs.lengths.clamp(min=1)  # a program without a step is one of zeros
        padded = torch.zeros(len(inputs), int(lengths.max()), steps.shape[1])
        starts = torch.cumsum(inputs.lengths, 0) - inputs.lengths
        padded[program, torch.arange(len(steps)) - starts[program]] = steps
        packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
        read, _ = pad_packed_sequence(self.sequence(packed)[0], batch_first=True)
        total = (read + padded).sum(1)  # the LSTM refines what the steps say alone
        embedded: torch.Tensor = total + torch.relu(self.embed(total))
        return embedded

    def answer(self, embedded: torch.Tensor, device: torch.Tensor) -> torch.Tensor:
        """Margins without a memory, float32 [n]; `device` is a row of `known` or -1."""
        margins = self.head(embedded).squeeze(1)
        own = self.device_heads[device.clamp(min=0)] if len(self.known) else None
        if own is None:
            return margins
        correction = (embedded * own[:, :-1]).sum(1) + own[:, -1]
        return margins + correction * (device >= 0)

    def recall(
        self, queries: torch.Tensor, support: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Corrections of the margins of the queries of one or more tasks, float32 [t, q].

        Args:
            queries: Embeddings, float32 [t, q, width].
            support: Embeddings from the fastest to the slowest, float32 [t, s, width].
            labels: What is known of each, float32 [t, s, 3]; all NaN where there is none.
        """
        lacking = torch.isnan(labels[:, :, 0])
        told = torch.cat([support, labels.nan_to_num()], 2)
        memory = self.remember(told) + self.memory(told)[0]
        tasks, count, width = queries.shape
        flat = queries.reshape(-1, width)
        hidden, cell, read = flat, torch.zeros_like(flat), torch.zeros_like(flat)
        for _ in range(self.unrolling):
            hidden, cell = self.cell(torch.cat([flat, read], 1), (hidden, cell))
            hidden = hidden + flat
            asked = hidden.reshape(tasks, count, width)
            found, _ = self.attend(asked, memory, memory, lacking, need_weights=False)
            read = found.reshape(-1, width)
        margins: torch.Tensor = self.correct(torch.cat([hidden, read], 1))
        return margins.reshape(tasks, count)

    def last_block(self) -> list[nn.Parameter]:
        """What fine-tuning changes."""
        layers = (self.embed, self.head, self.correct)
        return [self.device_heads, *(p for layer in layers for p in layer.parameters())]


@dataclass(frozen=True)
class FittedAttention:
    """A network and how its inputs are scaled."""

    net: AttentionNet
    scaling: Scaling

    def margins(self, batch: Batch, support: Examples | None) -> npt.NDArray[np.float64]:
        """The margin of each program.

        Args:
            batch: The queries.
            support: Measured programs. A query reads those of its own task on its own device,
                which are recognised by their features; where there are none, the head answers.
        """
        with nets.torch_threads(), torch.no_grad():
            embedded, margins = _embed(self.net, self.scaling, batch)
            if support is not None:
                _read_support(self.net, self.scaling, batch, support, embedded, margins)
        return np.asarray(margins.numpy(), np.float64)

    def write(self, folder: Path) -> None:
        """Writes weights and scaling."""
        nets.write_weights(folder, {**self.net.state_dict(), **self.scaling.tensors})

    def importance(self) -> dict[str, float]:
        """Nothing: a network splits on no column."""
        return {}


def train(
    settings: AttentionParameters, train: Side, valid: Side, on_epoch: OnEpoch | None
) -> FittedAttention:
    """Descends until the valid side improves no more, judged without a support set."""
    watch = Watch(valid, settings.point_weight, settings.patience, on_epoch)
    batch, check = train.examples.batch, valid.examples.batch
    scaling = Scaling.of(batch)
    with nets.torch_threads(), nets.seeded(settings.seed):
        net = AttentionNet(settings, torch.unique(_hardware(batch), dim=0))
        fitted = FittedAttention(net, scaling)
        best = nets.Best(net, watch, lambda: fitted.margins(check, None))
        _descend(settings, net, list(net.parameters()), scaling, train, best)
        best.restore()
    return fitted


def fine_tune(
    settings: AttentionParameters, fitted: FittedAttention, records: Side
) -> FittedAttention:
    """A few epochs on other records; the heads change, with one more for a new device."""
    net = copy.deepcopy(fitted.net)
    devices = torch.unique(_hardware(records.examples.batch), dim=0)
    new = devices[_rows_of(devices, net.known) < 0]
    net.known = torch.cat([net.known, new])
    heads = torch.cat([net.device_heads.data, torch.zeros(len(new), settings.width + 1)])
    net.device_heads = nn.Parameter(heads)
    with nets.torch_threads(), nets.seeded(settings.seed):
        _descend(settings, net, net.last_block(), fitted.scaling, records, None)
    return FittedAttention(net, fitted.scaling)


def read(folder: Path, files: set[str], settings: AttentionParameters) -> FittedAttention:
    """The network of a folder."""
    weights, scaling = nets.read_weights(folder, files)
    net = AttentionNet(settings, weights["known"])
    net.load_state_dict(weights)
    return FittedAttention(net.eval(), scaling)


def _descend(
    settings: AttentionParameters,
    net: AttentionNet,
    parameters: list[nn.Parameter],
    scaling: Scaling,
    side: Side,
    best: nets.Best | None,
) -> None:
    inputs, targets = scaling(side.examples.batch), nets.targets_of(side)
    device = _rows_of(_hardware(side.examples.batch), net.known)
    rng = np.random.default_rng(settings.seed)

    def loss(positions: torch.Tensor, chunk: torch.Tensor) -> torch.Tensor:
        embedded = net.encode(inputs.take(positions))
        own = device[positions]
        if best and rng.random() < _SHARED_ONLY:
            own = torch.full_like(own, -1)
        margins = net.answer(embedded, own)
        wanted = targets.take(positions)
        return loss_of(margins, wanted, chunk, settings) + _recalled_loss(
            settings, net, embedded, margins, wanted, chunk, rng
        )

    nets.descend(net, parameters, settings, side, loss, best)


def _recalled_loss(
    settings: AttentionParameters,
    net: AttentionNet,
    embedded: torch.Tensor,
    margins: torch.Tensor,
    targets: Targets,
    chunk: torch.Tensor,
    rng: np.random.Generator,
) -> torch.Tensor:
    """The loss with a part of each chunk, at random, as the support set of the rest."""
    counts = torch.bincount(chunk)
    within = torch.arange(len(chunk)) - (torch.cumsum(counts, 0) - counts)[chunk]
    share = torch.tensor(rng.uniform(0, _SUPPORT_SHARE, len(counts)), dtype=torch.float32)
    measured = within < (share * counts).ceil()[chunk]
    queries = torch.nonzero(~measured).squeeze(1)
    members = [torch.nonzero(measured & (chunk == i)).squeeze(1) for i in range(len(counts))]
    support = [_memory(rows, embedded, margins, targets.slowness) for rows in members]
    asked = [torch.nonzero(~measured & (chunk == i)).squeeze(1) for i in range(len(counts))]
    corrections = net.recall(
        pad_sequence([embedded[rows] for rows in asked], batch_first=True),
        pad_sequence([vectors for vectors, _ in support], batch_first=True),
        pad_sequence([labels for _, labels in support], True, float("nan")),
    )
    flat = torch.cat([row[: len(rows)] for row, rows in zip(corrections, asked, strict=True)])
    # Chunks are in order, and so are the queries.
    return loss_of(margins[queries] + flat, targets.take(queries), chunk[queries], settings)


def _memory(
    rows: torch.Tensor, embedded: torch.Tensor, margins: torch.Tensor, slowness: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings and labels of measured programs of a task, from the fastest to the slowest."""
    rows = rows[torch.argsort(slowness[rows], stable=True)]
    slow, said = slowness[rows], margins[rows].detach()
    failed = torch.isinf(slow)
    middle = slow[~failed].mean() if (~failed).any() else torch.zeros(())
    speed = torch.where(failed, -_WIDEST, middle - slow)
    labels = torch.stack([speed, said - said.mean(), failed.float()], 1)
    return embedded[rows], labels.clamp(-_WIDEST, _WIDEST)


def _embed(net: AttentionNet, scaling: Scaling, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings and margins without a memory of the programs of a batch."""
    inputs, device = scaling(batch), _rows_of(_hardware(batch), net.known)
    parts = list(nets.in_parts(len(batch)))
    embedded = torch.cat([net.encode(inputs.take(part)) for part in parts])
    return embedded, net.answer(embedded, device)


def _read_support(
    net: AttentionNet,
    scaling: Scaling,
    batch: Batch,
    support: Examples,
    embedded: torch.Tensor,
    margins: torch.Tensor,
) -> None:
    """Corrects, in place, the margins of the queries whose task has measured programs."""
    vectors, said = _embed(net, scaling, support.batch)
    slowness = torch.tensor(np.log(np.nan_to_num(support.latency_s, nan=np.inf))).float()
    measured: dict[bytes, list[int]] = {}
    for i, key in enumerate(_keys(support.batch)):
        measured.setdefault(key, []).append(i)
    asked: dict[bytes, list[int]] = {}
    for i, key in enumerate(_keys(batch)):
        if key in measured:
            asked.setdefault(key, []).append(i)
    for key, queries in asked.items():
        rows = torch.tensor(measured[key][-MOST_SUPPORT:])
        known, labels = _memory(rows, vectors, said, slowness)
        corrections = net.recall(embedded[queries][None], known[None], labels[None])
        margins[queries] += corrections[0]


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
