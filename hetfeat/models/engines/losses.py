"""What a network learns from: the squared error of y, and the order inside a task on a device."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from hetfeat.models.metrics import NOISE

_POINT_SCALE = 4.0
"""A squared error is at most 1/4 in practice, the loss of a pair log 2 at chance."""


@dataclass(frozen=True)
class Targets:
    """Labels of n programs.

    Attributes:
        y: Label of each program, float32 [n].
        slowness: Logarithm of the latency, infinite for a failed program, float32 [n].
    """

    y: torch.Tensor
    slowness: torch.Tensor

    def take(self, index: torch.Tensor) -> "Targets":
        """Labels of the programs of `index`, in that order."""
        return Targets(self.y[index], self.slowness[index])


def loss_of(
    margins: torch.Tensor,
    targets: Targets,
    group: torch.Tensor,
    settings: Any,
    noise: float = NOISE,
) -> torch.Tensor:
    """(1 - point_weight) x mean loss of a pair + point_weight x squared error of y.

    The loss of a pair is log(1 + exp(margin of the slower - margin of the faster)). With
    `lambda_rank` it is weighed by |gain difference x discount difference| as in LambdaRank
    (Burges 2010), gains 2^y - 1 and ranks inside the group.

    Args:
        margins: Margins of the programs, float32 [n].
        targets: Labels of the same programs.
        group: Code of the group of each program, int64 [n]; only programs of a group are compared.
        settings: Hyperparameters, with `point_weight` and `lambda_rank`.
        noise: Least relative difference of latencies for a pair to count, as a share; `NOISE` by
            default.
    """
    share: float = settings.point_weight
    loss: torch.Tensor = (
        share * _POINT_SCALE * functional.mse_loss(torch.sigmoid(margins), targets.y)
    )
    faster, slower = _pairs(targets.slowness, group, noise)
    if not len(faster):
        return loss
    each: torch.Tensor = functional.softplus(margins[slower] - margins[faster])
    if settings.lambda_rank:
        weight = _lambda_weights(margins.detach(), targets.y, group, faster, slower)
        each = each * weight / weight.mean().clamp_min(1e-9)
    return loss + (1 - share) * each.mean()


def _pairs(
    slowness: torch.Tensor, group: torch.Tensor, noise: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions of the faster and the slower program of each pair."""
    lead = slowness[None, :] - slowness[:, None]
    same = group[None, :] == group[:, None]
    faster, slower = torch.nonzero(same & (lead > math.log1p(noise)), as_tuple=True)
    return faster, slower


def _lambda_weights(
    margins: torch.Tensor,
    y: torch.Tensor,
    group: torch.Tensor,
    faster: torch.Tensor,
    slower: torch.Tensor,
) -> torch.Tensor:
    by_margin = torch.argsort(margins, descending=True, stable=True)
    order = by_margin[torch.argsort(group[by_margin], stable=True)]
    counts = torch.bincount(group)
    starts = torch.cumsum(counts, 0) - counts
    rank = torch.empty_like(margins)
    rank[order] = (torch.arange(len(margins)) - starts[group[order]]).to(margins.dtype)
    discount, gain = 1 / torch.log2(2 + rank), torch.exp2(y) - 1
    return (gain[faster] - gain[slower]).abs() * (discount[faster] - discount[slower]).abs()
