"""Networks on the workers of a cluster: torch's distributed training, each worker its own tasks.

DistributedDataParallel averages the workers' gradients of each step, so that all have the same
weights after it. In a process that trains alone each function here answers for that process.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import psutil
import torch
from torch import distributed, nn

from hetfeat.cluster import free_port, host_of

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
StepLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Callable that gives the loss of the programs at some positions, given the chunk of each."""


@dataclass(frozen=True)
class Meeting:
    """What a worker needs to find the others.

    Attributes:
        store: Address at which the first worker keeps who is where.
        own: Address of this worker.
        rank: Number of this worker, counted from 0.
        size: Number of workers.
    """

    store: str
    own: str
    rank: int
    size: int


def meet(client: "Client", workers: Sequence[str]) -> list[Meeting]:
    """What each worker needs, the first one's machine as the place to meet."""
    first = host_of(workers[0])
    (port,) = client.run(free_port, workers=[workers[0]]).values()
    return [
        Meeting(f"tcp://{first}:{port}", host_of(worker), rank, len(workers))
        for rank, worker in enumerate(workers)
    ]


@contextmanager
def in_group(met: Meeting, patience_s: float = 300.0) -> Iterator[None]:
    """Training together with the others for the length of the block; of one worker, alone.

    Args:
        met: What this worker needs to find the others.
        patience_s: Seconds that the others may take to come, or to take a step; 300 by default.

    Raises:
        ConnectionError: Another worker was lost.
    """
    if met.size == 1:
        yield
        return
    # Gloo would take what the machine's name resolves to, which may be the machine itself.
    os.environ["GLOO_SOCKET_IFNAME"] = _interface_of(met.own)
    distributed.init_process_group(
        "gloo",
        init_method=met.store,
        rank=met.rank,
        world_size=met.size,
        timeout=timedelta(seconds=patience_s),
    )
    try:
        yield
    except RuntimeError as error:
        if "gloo" not in str(error):
            raise
        raise ConnectionError("a worker that trained with this one was lost") from error
    finally:
        distributed.destroy_process_group()


def rank() -> int:
    """Number of this process among those that train together, 0 where it is alone."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def own_seed(seed: int) -> Any:
    """A seed for draws of one's own programs: the seed itself for the first process."""
    return [seed, rank()] if rank() else seed


def of_all(value: T) -> list[T]:
    """The value of each process, in the order of ranks."""
    if not distributed.is_initialized():
        return [value]
    values: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


def of_first(value: T) -> T:
    """The value of the first process: where processors differ, all must decide alike."""
    return of_all(value)[0]


def averaged(net: nn.Module, step_loss: StepLoss) -> StepLoss:
    """The loss of a step, whose gradients are the mean of all processes' once it went backward.

    A process that has no programs left in a step counts as one whose gradient is zero.
    """
    if not distributed.is_initialized():
        return step_loss
    return nn.parallel.DistributedDataParallel(_Step(net, step_loss))


class _Step(nn.Module):
    """A step's loss as a module, which is what torch's training takes."""

    def __init__(self, net: nn.Module, step_loss: StepLoss) -> None:
        super().__init__()
        self.net, self.step_loss = net, step_loss

    def forward(self, positions: torch.Tensor, chunk: torch.Tensor) -> torch.Tensor:
        """Float32 []; every parameter has a gradient of it, if a zero one, as the others wait."""
        none = torch.stack([parameter.sum() for parameter in self.net.parameters()]).sum() * 0
        return self.step_loss(positions, chunk) + none if len(positions) else none


def _interface_of(address: str) -> str:
    """The network interface that has an address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == address for each in addresses):
            return name
    raise ConnectionError(f"no network interface of this machine has the address {address}")
