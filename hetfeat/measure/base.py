"""The contract of a measurer."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Protocol, Self, TypeVar

from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import RequestError, WorkFailed
from hetfeat.records import ErrorKind, Measurement, Program, Task

Item = TypeVar("Item")
R = TypeVar("R")


class DeviceLost(WorkFailed):
    """No server of the device could be had for too long; what was measured before is kept."""


class Measurer(Protocol):
    """Measures programs. A crash, a hang or a lost device costs one candidate."""

    def measure(
        self, programs: Sequence[Program], incumbent_s: Mapping[str, float] | None = None
    ) -> list[Measurement]:
        """Measurements of `programs`, in their order.

        Args:
            programs: Candidates; their tasks must be known to the measurer.
            incumbent_s: Best latency so far in seconds by task hash; a first run much slower than
                that is taken as the program's latency, without repeats. Default None.

        Raises:
            DeviceLost: The device cannot be reached, after patient retries.
        """


class DeviceMeasurer(Measurer, Protocol):
    """Measures on one device, and proposes programs for it; a context that holds children."""

    profile: DeviceProfile

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def add_task(self, task: Task, module: str) -> None:
        """Makes a task known by its module, as `save_workload` writes it."""

    def sample(self, task: Task, count: int, seed: int) -> list[Program]:
        """Up to `count` distinct random programs with their per-store features."""

    def vary(self, task: Task, parents: list[str], count: int, seed: int) -> list[Program]:
        """Up to `count` distinct programs a few changes away from the traces `parents`."""

    def apply(self, task: Task, traces: list[str]) -> list[Program]:
        """The programs of traces without post-processing, less those that do not apply."""

    def for_each(self, function: Callable[[Item], R], items: Sequence[Item]) -> list[R]:
        """Results of a function of each item in order, several at once where it proposes."""

    def measure_each(
        self,
        programs: Sequence[Program],
        incumbent_s: Mapping[str, float] | None = None,
        cold: bool = False,
    ) -> Iterator[Measurement]:
        """Yields each measurement as it is known, not in the order of `programs`.

        `cold` times runs whose weights have left the caches, as they run in a network.
        """


def need_cpu(profile: DeviceProfile) -> None:
    """Refuses a device whose programs cannot be measured, and so not be tuned.

    Raises:
        RequestError: Its target is no CPU.
    """
    if not profile.target.is_cpu:
        raise RequestError(
            f"device '{profile.name}', whose target is {profile.target.get('kind')}",
            "a CPU (llvm), or this machine's own NVIDIA GPU: others are not measured so far",
            "choose another --device, or make one with `hetfeat devices probe --gpu true`",
        )


def need_measurable(profile: DeviceProfile) -> None:
    """Refuses a device whose programs cannot be measured from here.

    Raises:
        RequestError: Neither a CPU nor this machine's own NVIDIA GPU, or there is none.
    """
    if profile.target.is_gpu and profile.route.is_local:
        from hetfeat.devices.cuda import need_gpu

        need_gpu(profile.target["arch"])
    else:
        need_cpu(profile)


def make_measurement(
    program: Program,
    device: str,
    latencies_s: Sequence[float],
    error: ErrorKind | None,
    there: str | None = None,
) -> Measurement:
    """A measurement made now, with this TVM and perhaps another one `there`, on the device."""
    here = version("apache-tvm")
    versions = f"tvm {here}" if there in (None, here) else f"tvm {here}, on the device {there}"
    now_s = round(time.time(), 3)
    return Measurement(program, device, tuple(latencies_s), error, now_s, versions)


def in_order(programs: Sequence[Program], found: Iterable[Measurement]) -> list[Measurement]:
    """Measurements in the order of their programs."""
    done = {measurement.program.key: measurement for measurement in found}
    return [done[program.key] for program in programs]
