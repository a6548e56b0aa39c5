"""What tests of float16 share: networks, and a look at machine code."""

import struct

import torch
from torch import nn

HMMA = 0x23C
"""Code of the instruction of tensor cores that multiplies float16, of every architecture here."""


class Attention(nn.Module):
    """A layer of a transformer, of 32 features."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))
        self.norm, self.grow, self.shrink = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        query, key, value = (part(x) for part in self.parts[:3])
        scores = torch.softmax(query @ key.transpose(1, 2) / 32**0.5, -1)
        x = self.norm(x + self.parts[3](scores @ value))
        return self.norm(x + self.shrink(nn.functional.gelu(self.grow(x))))


class Residual(nn.Module):
    """Convolutions of which one is passed by."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Conv2d(c, 16, 3, padding=1) for c in (3, 16))
        self.norm, self.head = nn.BatchNorm2d(16), nn.Linear(16, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        return self.head((x + torch.relu(self.second(x))).mean((2, 3)))


def multiplications_on_tensor_cores(cubin):
    """How often the instruction occurs in machine code, by its lowest 12 bits of 128."""
    (start,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<3H", cubin, 58)
    heads = [struct.unpack_from("<IIQQQQ", cubin, start + size * at) for at in range(count)]
    found = 0
    for name, _, _, _, offset, length in heads:
        if cubin[heads[names][4] + name :].startswith(b".text."):
            codes = (
                struct.unpack_from("<H", cubin, at)[0] for at in range(offset, offset + length, 16)
            )
            found += sum(code & 0xFFF == HMMA for code in codes)
    return found
