"""Measures on this machine: several children build in parallel, one at a time runs."""

import contextlib
import copy
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Self

from hetfeat.devices import host
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError, RequestError
from hetfeat.measure.base import in_order, measured, need_measurable
from hetfeat.measure.build_timeout import BUILD_TIMEOUT_S
from hetfeat.measure.latencies import latencies_of
from hetfeat.measure.machine_lock import building, timing
from hetfeat.measure.worker_pool import RESTART_BYTES, Children
from hetfeat.records import ErrorKind, Measurement, Program

CHILD = "hetfeat.measure.child"
BUILDS_AHEAD = 8
"""Programs a child builds before the running starts."""
RUN_TIMEOUT_S = 10.0
SETTLE_S = 0.02
"""Until the threads of a child that has just run programs sleep (`host.TVM_SPINS`)."""


def _builders(profile: DeviceProfile) -> int:
    return host.usable_cores() if profile.target.is_gpu else profile.threads


class LocalMeasurer(Children):
    """Proposes and measures programs in persistent children.

    Building uses one child a thread of the device, for a GPU one a core, or `builders`; running is
    exclusive on the machine, so that a program has all cores to itself. A child that dies or hangs
    costs the program it was at, nothing else.

    Args:
        profile: The device.
        build_timeout_s: Longest that a build may take.
        run_timeout_s: Longest that a program's runs may take together.
        memory_limit_bytes: Most address space of a child; by default half of the memory.
        child: Module of the measuring child.
        builders: Children that build; by default one a thread of the device.

    Raises:
        RequestError: Not a device whose route is local, or neither a CPU nor an NVIDIA GPU that
            is here.
    """

    def __init__(
        self,
        profile: DeviceProfile,
        build_timeout_s: float = BUILD_TIMEOUT_S,
        run_timeout_s: float = RUN_TIMEOUT_S,
        memory_limit_bytes: int | None = None,
        builders: int | None = None,
        child: str = CHILD,
    ) -> None:
        if not profile.route.is_local:
            raise RequestError(
                f"measuring on device '{profile.name}' from here",
                "a device whose route is local",
                "pass --device local, or the file of a profile that `hetfeat devices probe` wrote",
            )
        need_measurable(profile)
        super().__init__(
            profile, child, builders or _builders(profile), build_timeout_s, memory_limit_bytes
        )
        self._run_timeout_s = run_timeout_s
        self._built: dict[str, tuple[int, int]] = {}
        self._run_options: dict[str, Any] = {}
        self._ran_last: list[int] = []  # of `beside`, too

    def beside(self, profile: DeviceProfile) -> Self:
        """A measurer of the same machine code with another number of threads, by these children.

        What ran here stays built until it has run there, too. It lives as long as this one.
        """
        other = copy.copy(self)
        other.profile = profile
        other._run_options = {"threads": profile.threads}
        self._run_options = {"threads": self.profile.threads, "keep": True}
        return other

    def measure(
        self, programs: Sequence[Program], incumbent_s: Mapping[str, float] | None = None
    ) -> list[Measurement]:
        """See `Measurer.measure`."""
        return in_order(programs, self.measure_each(programs, incumbent_s))

    def measure_each(
        self,
        programs: Sequence[Program],
        incumbent_s: Mapping[str, float] | None = None,
        cold: bool = False,
    ) -> Iterator[Measurement]:
        """Yields each measurement as it is made; see `DeviceMeasurer.measure_each`."""
        best = dict(incumbent_s or {})
        size = BUILDS_AHEAD * len(self._workers)
        for start in range(0, len(programs), size):
            for worker in self._workers:
                worker.restart_above(RESTART_BYTES)
            some = programs[start : start + size]
            queue = deque(program for program in some if self._holder(program) is None)
            kept = [[p for p in some if self._holder(p) == i] for i in range(len(self._workers))]
            with building():
                built = self._threads.map(self._build_from, range(len(kept)), kept, repeat(queue))
                shares = list(enumerate(built))
            with timing():
                for index, share in shares:  # a child's programs in a row
                    for program, error in share:
                        result = self._run(index, program, error, best, cold)
                        if result.latency_s is not None:
                            known = best.get(program.task.hash, result.latency_s)
                            best[program.task.hash] = min(known, result.latency_s)
                        yield result

    def _build_from(
        self, index: int, kept: list[Program], queue: deque[Program]
    ) -> list[tuple[Program, ErrorKind | None]]:
        """Lets one child build from the queue until it is empty, beside what it still holds."""
        share: list[tuple[Program, ErrorKind | None]] = [(program, None) for program in kept]
        with contextlib.suppress(IndexError):
            while True:
                program = queue.popleft()
                share.append((program, self._ensure_built(index, program)))
        return share

    def _run(
        self,
        index: int,
        program: Program,
        error: ErrorKind | None,
        best: Mapping[str, float],
        cold: bool,
    ) -> Measurement:
        # The child may have been restarted since it built the program.
        error = error or self._ensure_built(index, program)
        latencies: list[float] = []
        if error is None:
            request = {
                "do": "run",
                "program": program.key,
                "incumbent_s": best.get(program.task.hash),
                **({"cold": True} if cold else {}),
                **self._run_options,
            }
            if self._ran_last != [index]:
                time.sleep(SETTLE_S)
                self._ran_last[:] = [index]
            found, error = self._ask(index, program.task, request, self._run_timeout_s)
            latencies, error = self._believed(program, found, error)
            if error is not None or "keep" not in self._run_options:
                self._built.pop(program.key, None)
        return measured(program, self.profile.name, latencies, error)

    def _believed(
        self, program: Program, found: Any, error: ErrorKind | None
    ) -> tuple[list[float], ErrorKind | None]:
        """Latencies that can be; others are a failure of the program."""
        if error is not None:
            return [], error
        try:
            return latencies_of(found, program.task, self.profile), None
        except DataError:
            return [], "run"

    def _holder(self, program: Program) -> int | None:
        """The child that has it built."""
        index, generation = self._built.get(program.key, (0, -1))
        return index if self._workers[index].generation == generation else None

    def _ensure_built(self, index: int, program: Program) -> ErrorKind | None:
        if self._holder(program) == index:
            return None
        _, error = self._build(index, program)
        if error is None:
            self._built[program.key] = index, self._workers[index].generation
        return error
