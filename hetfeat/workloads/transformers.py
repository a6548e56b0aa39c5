"""BERTs by name, built from torch's layers; each takes token ids, int64 [batch, TOKENS].

Latency does not depend on the weights, which are random and seeded; for trained ones pass
`module:function`.
"""

from dataclasses import dataclass

import torch
from torch import nn

VOCABULARY = 30522
TOKENS = 128


@dataclass(frozen=True)
class Encoder:
    """Sizes of a stack of encoder layers; a feed-forward layer is four times as wide."""

    layers: int
    width: int
    heads: int


BERTS = {
    "bert_tiny": Encoder(2, 128, 2),
    "bert_mini": Encoder(4, 256, 4),
    "bert_small": Encoder(4, 512, 8),
    "bert_medium": Encoder(8, 512, 8),
    "bert_base": Encoder(12, 768, 12),
}
"""The sizes of Turc et al. 2019 (arXiv 1908.08962) and Devlin et al. 2018 (arXiv 1810.04805)."""


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each added to its input and normalised."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.joined = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.attention_norm, self.output_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """float32 [batch, tokens, width] to the same shape."""
        batch, tokens, width = x.shape
        shape = (batch, tokens, self.heads, width // self.heads)
        query, key, value = (
            layer(x).view(shape).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, tokens, width)
        x = self.attention_norm(x + self.joined(mixed))
        normed: torch.Tensor = self.output_norm(x + self.narrow(nn.functional.gelu(self.wide(x))))
        return normed


class Bert(nn.Module):
    """BERT's encoder: token ids, int64 [batch, tokens], to float32 [batch, tokens, width]."""

    def __init__(self, sizes: Encoder) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, sizes.width)
        self.positions = nn.Parameter(torch.randn(TOKENS, sizes.width) * 0.02)
        self.norm = nn.LayerNorm(sizes.width)
        self.layers = nn.ModuleList(
            EncoderLayer(sizes.width, sizes.heads) for _ in range(sizes.layers)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """See the class."""
        x: torch.Tensor = self.norm(self.words(tokens) + self.positions)
        for layer in self.layers:
            x = layer(x)
        return x


def bert(name: str, batch: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A BERT of `BERTS` and example token ids."""
    return Bert(BERTS[name]), (torch.randint(0, VOCABULARY, (batch, TOKENS)),)
