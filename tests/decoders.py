"""A decoder of two layers as an ONNX file: one step, its caches inputs and outputs."""

import warnings
from pathlib import Path

import torch
from torch import nn

VOCABULARY, POSITIONS, WIDTH, HEADS, PAST = 50, 16, 16, 2, 7
INPUTS = ["input_ids", "attention_mask", "position_ids"]
CACHES = [f"{layer}.{part}" for layer in range(2) for part in ("key", "value")]
OUTPUTS = ["logits", *(f"present.{name}" for name in CACHES)]


class Layer(nn.Module):
    """Attention of new tokens on those of the cache and on themselves."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, hidden, turned, key, value):
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        key, value = torch.cat([key, turned(k)], 2), torch.cat([value, v], 2)
        scores = turned(q) @ key.transpose(-2, -1) / 4 + hidden
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, tokens, WIDTH)
        return x + self.out(mixed), key, value


class Decoder(nn.Module):
    """Positions are looked up in a table, or computed: those that are take any number."""

    def __init__(self, table: bool):
        super().__init__()
        self.words, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.positions = nn.Embedding(POSITIONS, WIDTH) if table else None
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, input_ids, attention_mask, position_ids, *past):
        x = self.words(input_ids)
        if self.positions is not None:
            x = x + self.positions(position_ids)
        angle = position_ids[:, None, :, None].float() * 0.1
        hidden = (1 - attention_mask[:, None, None, :].float()) * -1e9

        def turned(of):
            return (
                of if self.positions is not None else of * angle.cos() + of.flip(-1) * angle.sin()
            )

        presents = []
        for layer, key, value in zip(self.layers, past[::2], past[1::2], strict=True):
            x, *kept = layer(x, hidden, turned, key, value)
            presents += kept
        return (self.head(x), *presents)


def save(path: Path, table: bool = True) -> Path:
    torch.manual_seed(0)
    ids = torch.ones(1, 1, dtype=torch.int64)
    past = [torch.randn(1, HEADS, PAST, WIDTH // HEADS) for _ in CACHES]
    mask = torch.ones(1, PAST + 1, dtype=torch.int64)
    names = [*INPUTS, *(f"past_key_values.{name}" for name in CACHES)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Decoder(table).eval(),
            (ids, mask, ids, *past),
            str(path),
            input_names=names,
            output_names=OUTPUTS,
            dynamic_axes={name: {0: "batch"} for name in (*names, *OUTPUTS)},
            dynamo=False,
        )
    return path
