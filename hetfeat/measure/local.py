"""Measures on this machine: several children build in parallel, one at a time runs."""

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError, RequestError
from hetfeat.measure.base import make_measurement, need_measurable
from hetfeat.measure.latencies import latencies_of
from hetfeat.measure.machine_lock import building, timing
from hetfeat.measure.messages import RunProgram, Seconds, Start
from hetfeat.measure.pool_measurer import PoolMeasurer
from hetfeat.measure.timing_options import RankingOptions
from hetfeat.measure.worker_pool import PoolOptions, WorkerPool
from hetfeat.progress import stage
from hetfeat.records import ErrorKind, Measurement, Program

CHILD = "hetfeat.measure.child"


@dataclass(frozen=True)
class MeasureOptions(PoolOptions):
    """Settings of measuring on this machine.

    Attributes:
        ranking: Options that say when a GEMM state's first run tells enough, default those of
            `RankingOptions`.
        run_timeout_s: Longest that a program's runs may take together, in seconds, default 10.
        builds_ahead: Number of programs that a child builds before running starts, default 8.
        settle_s: Pause before another child runs programs, in seconds, default 0.02: the threads
            of the one before have gone to sleep by then (`host.TVM_SPINS`).
    """

    ranking: RankingOptions = field(default_factory=RankingOptions)
    run_timeout_s: float = 10.0
    builds_ahead: int = 8
    settle_s: float = 0.02

    def start(self, profile: DeviceProfile) -> Start:
        """See `PoolOptions.start`."""
        return super().start(profile).model_copy(update={"ranking": self.ranking})


DEFAULTS = MeasureOptions()


class LocalMeasurer(PoolMeasurer):
    """Proposes and measures programs in persistent children.

    Building uses one child a thread of the device, or `builders`; running is exclusive on the
    machine, so that a program has all cores to itself. A child that dies or hangs costs the program
    it was at, nothing else.

    Args:
        profile: Profile of the device.
        options: Settings of measuring on this machine, default `DEFAULTS`.
        builders: Number of children; default None for one a thread of the device.
        child: Name of the measuring child's module, default `CHILD`.
        pool: Children of a measurer of the same machine code, which may use more threads than the
            device; default None for children of its own.

    Raises:
        RequestError: Not a device whose route is local, or neither a CPU nor an NVIDIA GPU that
            is here.
    """

    def __init__(
        self,
        profile: DeviceProfile,
        options: MeasureOptions = DEFAULTS,
        *,
        builders: int | None = None,
        child: str = CHILD,
        pool: WorkerPool | None = None,
    ) -> None:
        if not profile.route.is_local:
            raise RequestError(
                f"measuring on device '{profile.name}' from here",
                "a device whose route is local",
                "pass --device local, or the file of a profile that `hetfeat devices probe` wrote",
            )
        need_measurable(profile)
        self._run_threads = profile.threads if pool else None
        if pool is None:
            pool = WorkerPool(profile, child, builders or profile.threads, options)
        super().__init__(profile, pool)
        self._options = options
        self._keeps_built = False

    def with_threads(self, profile: DeviceProfile) -> "LocalMeasurer":
        """A measurer of the same machine code with another number of threads, by these children.

        What ran here stays built until it has run there, too. It lives as long as this one.
        """
        self._run_threads, self._keeps_built = self.profile.threads, True
        return LocalMeasurer(profile, self._options, pool=self.pool)

    def measure_each(
        self,
        programs: Sequence[Program],
        incumbent_s: Mapping[str, float] | None = None,
        cold: bool = False,
    ) -> Iterator[Measurement]:
        """Yields each measurement as it is made; see `DeviceMeasurer.measure_each`."""
        best = dict(incumbent_s or {})
        size = self._options.builds_ahead * len(self.pool.workers)
        for start in range(0, len(programs), size):
            self.pool.restart_grown()
            some = programs[start : start + size]
            queue = deque(program for program in some if self._holder(program) is None)
            indices = range(len(self.pool.workers))
            kept = [[p for p in some if self._holder(p) == i] for i in indices]
            with stage("building programs"), building():
                built = self.pool.threads.map(self._build_from, indices, kept, repeat(queue))
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
            request = RunProgram(
                program=program.key,
                incumbent_s=best.get(program.task.hash),
                cold=cold,
                threads=self._run_threads,
                keep=self._keeps_built,
            )
            if self.pool.last_runner != index:
                time.sleep(self._options.settle_s)
                self.pool.last_runner = index
            found, error = self.pool.ask(index, program.task, request, self._options.run_timeout_s)
            latencies, error = self._check_latencies(program, found, error)
            if error is not None or not self._keeps_built:
                self.pool.built.pop(program.key, None)
        return make_measurement(program, self.profile.name, latencies, error)

    def _check_latencies(
        self, program: Program, found: Seconds | None, error: ErrorKind | None
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
        index, generation = self.pool.built.get(program.key, (0, -1))
        return index if self.pool.workers[index].generation == generation else None

    def _ensure_built(self, index: int, program: Program) -> ErrorKind | None:
        if self._holder(program) == index:
            return None
        error = self.pool.build(index, program)
        if error is None:
            self.pool.built[program.key] = index, self.pool.workers[index].generation
        return error
