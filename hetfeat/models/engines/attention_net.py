"""The layers of the attention tuner; what they are for is told in `attention`."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from hetfeat.models.engines.inputs import CONTEXT_WIDTH, Inputs
from hetfeat.models.neural import AttentionParameters

LABELS = 3
"""What the memory knows of a measured program: its speed, what the head said, whether it failed."""


class AttentionNet(nn.Module):
    """Margins of programs, with a memory of measured ones or without.

    Attributes:
        known: Hardware vectors of the devices with a correction, float32 [d, h], -1 for NaN.
        heed: Weight of the memory's correction, float32 [].
    """

    known: torch.Tensor
    heed: torch.Tensor

    def __init__(self, settings: AttentionParameters, step_width: int, known: torch.Tensor) -> None:
        super().__init__()
        width, half = settings.width, settings.width // 2
        self.unrolling = settings.unrolling
        self.register_buffer("known", known)
        self.register_buffer("heed", torch.zeros(()))
        self.step = nn.Linear(step_width, width)
        self.context = nn.Linear(CONTEXT_WIDTH, width)
        self.sequence = nn.LSTM(width, half, settings.layers, batch_first=True, bidirectional=True)
        self.embed = nn.Linear(width, width)
        self.head = nn.Linear(width, 1)
        self.device_heads = nn.Parameter(torch.zeros(len(known), width + 1))
        self.memory = nn.LSTM(width + LABELS, half, batch_first=True, bidirectional=True)
        self.remember = nn.Linear(width + LABELS, width)
        self.cell = nn.LSTMCell(2 * width, width)
        self.attend = nn.MultiheadAttention(width, settings.heads, batch_first=True)
        self.correct = nn.Linear(2 * width, 1)
        # What the supports were measured at counts for, what the head said of them against.
        self.trust = nn.Parameter(torch.tensor([0.5, -0.5]))

    def encode(self, inputs: Inputs) -> torch.Tensor:
        """Embeddings, float32 [n, width]."""
        return self.embedding(self.trunk(inputs))

    def trunk(self, inputs: Inputs) -> torch.Tensor:
        """What embeddings are made of, and fine-tuning does not change, float32 [n, width]."""
        program = inputs.program
        steps = torch.relu(self.step(inputs.steps) + self.context(inputs.context)[program])
        lengths = inputs.lengths.clamp(min=1)  # a program without a step is one of zeros
        padded = torch.zeros(len(inputs), int(lengths.max()), steps.shape[1])
        starts = torch.cumsum(inputs.lengths, 0) - inputs.lengths
        padded[program, torch.arange(len(steps)) - starts[program]] = steps
        packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
        read, _ = pad_packed_sequence(self.sequence(packed)[0], batch_first=True)
        total: torch.Tensor = (read + padded).sum(1)  # the LSTM refines what the steps say alone
        return total

    def embedding(self, trunk: torch.Tensor) -> torch.Tensor:
        """Embeddings, float32 [n, width], of what the trunk gave."""
        embedded: torch.Tensor = trunk + torch.relu(self.embed(trunk))
        return embedded

    def answer(self, embedded: torch.Tensor, device: torch.Tensor) -> torch.Tensor:
        """Margins without a memory, float32 [n]; `device` is a row of `known` or -1."""
        margins: torch.Tensor = self.head(embedded).squeeze(1)
        own = self.device_heads[device.clamp(min=0)]
        correction = (embedded * own[:, :-1]).sum(1) + own[:, -1]
        return margins + correction * (device >= 0)

    def recall(
        self, queries: torch.Tensor, support: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Corrections of the margins of the queries of one or more tasks, float32 [t, q].

        Args:
            queries: Embeddings of the queries, float32 [t, q, width].
            support: Embeddings of the measured programs, fastest first, float32 [t, s, width].
            labels: Labels of the measured programs, as `LABELS` says, float32 [t, s, 3]; NaN where
                a task has fewer than s.
        """
        lacking = torch.isnan(labels[:, :, 0])
        told = torch.cat([support, labels.nan_to_num()], 2)
        packed = pack_padded_sequence(
            told, (~lacking).sum(1), batch_first=True, enforce_sorted=False
        )
        recurrent, _ = pad_packed_sequence(self.memory(packed)[0], True, total_length=told.shape[1])
        memory = self.remember(told) + recurrent
        tasks, count, width = queries.shape
        flat = queries.reshape(-1, width)
        hidden, cell, read = flat, torch.zeros_like(flat), torch.zeros_like(flat)
        for _ in range(self.unrolling):
            hidden, cell = self.cell(torch.cat([flat, read], 1), (hidden, cell))
            hidden = hidden + flat
            asked = hidden.reshape(tasks, count, width)
            found, weights = self.attend(asked, memory, memory, lacking)
            read = found.reshape(-1, width)
        own = self.correct(torch.cat([hidden, read], 1)).reshape(tasks, count)
        corrections: torch.Tensor = own + weights @ labels.nan_to_num()[:, :, :2] @ self.trust
        return corrections

    def last_block(self) -> list[nn.Parameter]:
        """What fine-tuning changes."""
        layers = (self.embed, self.head, self.correct)
        return [self.device_heads, self.trust, *(p for layer in layers for p in layer.parameters())]
