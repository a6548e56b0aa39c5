"""A network like TLP's, over the loops of a program instead of its primitives.

Layers as in Zhai et al. (ASPLOS 2023), half as wide: linears up to 128, self-attention of 8 heads,
two residual blocks, a sum over the sequence; LambdaRank. Unlike there, pairs lie inside tasks. It
knows neither the device nor the task, but through the extents. 10 epochs, as `attention` beside it
in docs/experiments: 50 of the full width take a core more than 20 minutes.
"""

from itertools import pairwise

import numpy as np
import torch
from torch import nn

from hetfeat.features.batch import Batch, Examples
from hetfeat.features.trace import WIDTH
from hetfeat.models.calibration import Calibration, fit_calibration
from hetfeat.models.early_stopping import EarlyStopping
from hetfeat.models.engines import net as nets
from hetfeat.models.engines.losses import loss_of
from hetfeat.models.labels import best_latencies, labels
from hetfeat.models.neural import MlpParameters
from hetfeat.models.training_set import side_of

SIZE, HEADS = 128, 8


class TlpNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = (WIDTH, 64, 128, SIZE, SIZE)
        self.embed = nn.Sequential(
            *(m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU()))
        )
        self.attend = nn.MultiheadAttention(SIZE, HEADS, batch_first=True)
        self.residual = nn.ModuleList(
            nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, SIZE)) for _ in "12"
        )
        self.score = nn.Linear(SIZE, 1)

    def forward(self, steps: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Margins, float32 [n], of sequences padded to float32 [n, longest, WIDTH]."""
        padding = torch.arange(steps.shape[1])[None] >= lengths[:, None]
        embedded = self.embed(steps)
        embedded = embedded + self.attend(embedded, embedded, embedded, key_padding_mask=padding)[0]
        for block in self.residual:
            embedded = embedded + block(embedded)
        each = self.score(embedded).squeeze(2).masked_fill(padding, 0)
        return each.sum(1)


class Tlp:
    """As much of the contract of a cost model as judging it needs."""

    def __init__(self, seed: int, rounds: int = 10) -> None:
        self.settings = MlpParameters(
            rounds=rounds,
            patience=rounds,
            batch=16,
            learning_rate=7e-4,
            point_weight=0.0,
            lambda_rank=True,
            seed=seed,
        )
        self.curve: Calibration | None = None

    def fit(self, train: Examples, valid: Examples) -> None:
        settings = self.settings
        learn, check = (side_of(s, train, seed=settings.seed) for s in (train, valid))
        watch = EarlyStopping(check, settings.point_weight, settings.patience, None)
        targets, batch = nets.targets_of(learn), train.batch.loaded()
        self.mean, self.scale = batch.steps.mean(0), batch.steps.std(0) + 1e-6

        def step_loss(positions: torch.Tensor, chunk: torch.Tensor) -> torch.Tensor:
            margins = self.net(*self.padded(batch, positions.numpy()))
            return loss_of(margins, targets.take(positions), chunk, settings)

        with nets.torch_threads(), nets.seeded(settings.seed):
            self.net = TlpNet()
            best = nets.Best(self.net, watch, lambda: self.margins(valid.batch.loaded()))
            nets.descend(self.net, list(self.net.parameters()), settings, learn, step_loss, best)
            best.restore()
        y = labels(valid, best_latencies(train, valid))
        self.curve = fit_calibration(self.predict(valid.batch), y)

    def padded(self, batch: Batch, index: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        some = batch.take(index)
        lengths = torch.tensor(np.diff(some.step_offsets))
        steps = torch.from_numpy((some.steps - self.mean) / self.scale)
        pieces = torch.split(steps, lengths.tolist())
        return nn.utils.rnn.pad_sequence(pieces, batch_first=True), lengths

    def margins(self, batch: Batch) -> np.ndarray:
        with torch.no_grad():
            parts = [self.net(*self.padded(batch, p.numpy())) for p in nets.in_parts(len(batch))]
        return torch.cat(parts).double().numpy()

    def predict(self, batch, support=None):
        return np.exp(np.clip(self.margins(batch.loaded()), -30, 30))

    def calibrate(self, scores):
        return self.curve(scores)
