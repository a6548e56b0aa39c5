"""What all measurers over a pool of children share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self, TypeVar

from hetfeat.devices.profile import DeviceProfile
from hetfeat.measure.base import in_order
from hetfeat.measure.worker_pool import WorkerPool
from hetfeat.records import Measurement, Program, Task

Item = TypeVar("Item")
R = TypeVar("R")


class PoolMeasurer(ABC):
    """A `DeviceMeasurer` whose programs are proposed and built by a pool; it differs in running.

    Args:
        profile: Profile of the device.
        pool: Pool of children that propose and build; they start and end with the measurer.
    """

    def __init__(self, profile: DeviceProfile, pool: WorkerPool) -> None:
        self.profile = profile
        self.pool = pool

    def __enter__(self) -> Self:
        self.pool.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.pool.__exit__(*error)

    def add_task(self, task: Task, module: str) -> None:
        """See `DeviceMeasurer.add_task`."""
        self.pool.add_task(task, module)

    def sample(self, task: Task, count: int, seed: int) -> list[Program]:
        """See `DeviceMeasurer.sample`."""
        return self.pool.sample(task, count, seed)

    def vary(self, task: Task, parents: list[str], count: int, seed: int) -> list[Program]:
        """See `DeviceMeasurer.vary`."""
        return self.pool.vary(task, parents, count, seed)

    def apply(self, task: Task, traces: list[str]) -> list[Program]:
        """See `DeviceMeasurer.apply`."""
        return self.pool.apply(task, traces)

    def for_each(self, function: Callable[[Item], R], items: Sequence[Item]) -> list[R]:
        """See `DeviceMeasurer.for_each`."""
        return self.pool.for_each(function, items)

    def measure(
        self, programs: Sequence[Program], incumbent_s: Mapping[str, float] | None = None
    ) -> list[Measurement]:
        """See `Measurer.measure`."""
        return in_order(programs, self.measure_each(programs, incumbent_s))

    @abstractmethod
    def measure_each(
        self,
        programs: Sequence[Program],
        incumbent_s: Mapping[str, float] | None = None,
        cold: bool = False,
    ) -> Iterator[Measurement]:
        """See `DeviceMeasurer.measure_each`."""
