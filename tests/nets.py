"""Networks for `--network nets:FUNCTION`: small ones, and functions that are none."""

import torch
from torch import nn


def tiny(batch):
    """Two convolutions, a pooling and a matmul at 16 x 16 pixels."""
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 8 * 8, 10),
    )
    return module, (torch.randn(batch, 3, 16, 16),)


def dense(batch):
    """The least there is to tune: one matmul."""
    return nn.Linear(64, 16), (torch.randn(batch, 64),)


def mixed(batch):
    """One of each operator that tasks are named after."""

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain = nn.Conv2d(4, 8, 3, padding=1, bias=False)
            self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=4, bias=False)
            self.linear = nn.Linear(8, 6, bias=False)

        def forward(self, x):
            x = nn.functional.max_pool2d(self.grouped(self.plain(x)), 2)
            return torch.softmax(self.linear(x.mean((2, 3))), -1)

    return Mixed(), (torch.randn(batch, 4, 8, 8),)


def two_outputs(batch):
    class Both(nn.Module):
        def forward(self, x):
            return x + 1, x * 2

    return Both(), (torch.randn(batch, 4),)


def heads(batch):
    """Outputs by name, one of which is none; the second depends on what `mask` keeps."""

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x, mask):
            return {"scores": self.linear(x), "loss": None, "kept": [x * mask]}

    return Heads(), (torch.randn(batch, 4), torch.ones(batch, 4))


def not_a_network(batch):
    return "a network"


def no_inputs(batch):
    return nn.ReLU(), ()


def unknown_operator(batch):
    class Sorted(nn.Module):
        def forward(self, x):
            return torch.linalg.eigvals(x).real

    return Sorted(), (torch.randn(batch, 4, 4),)


def unknown_operators(batch):
    class Both(nn.Module):
        def forward(self, x):
            return torch.logcumsumexp(torch.linalg.eigvals(x).real, 0)

    return Both(), (torch.randn(batch, 4, 4),)


def half(batch):
    return nn.Linear(4, 4).half(), (torch.randn(batch, 4).half(),)


def quantised(batch):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.ones(4, 4, dtype=torch.int8))

        def forward(self, x):
            return x @ (self.weight.float() * 0.1)

    return Scaled(), (torch.randn(batch, 4),)


A_CONSTANT = 3
