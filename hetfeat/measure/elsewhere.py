"""Measures on this machine what others build, or what it builds itself for its GPU meanwhile."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Self

from hetfeat.devices import host
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError
from hetfeat.measure.base import make_measurement, need_measurable
from hetfeat.measure.interruptible import InterruptibleThreads
from hetfeat.measure.latencies import latencies_of
from hetfeat.measure.local import CHILD, DEFAULTS, MeasureOptions
from hetfeat.measure.machine_lock import timing, timing_gpu
from hetfeat.measure.messages import LoadProgram, RequestFailed, RunProgram, Seconds
from hetfeat.measure.pool_builder import PoolBuilder
from hetfeat.measure.pool_measurer import PoolMeasurer
from hetfeat.measure.rounds import BuiltLibrary, BuiltRounds, Rounds, TaskBuilder
from hetfeat.measure.worker import Lost, Worker
from hetfeat.measure.worker_pool import WorkerPool
from hetfeat.records import ErrorKind, Measurement, Program, Task


class ElsewhereMeasurer(PoolMeasurer):
    """Proposes in children here, has others build, and runs in one child at a time.

    Args:
        profile: Profile of the device, a CPU or NVIDIA GPU of this machine.
        builder: Builder of the programs.
        options: Settings of measuring on this machine, default `local.DEFAULTS`.
        proposers: Number of children that propose; default None for one a thread of the device.
        rounds_at_once: Number of rounds begun at once, default 4; see `BuiltRounds`.

    Raises:
        RequestError: Its target is no CPU, and no NVIDIA GPU that is here.
    """

    def __init__(
        self,
        profile: DeviceProfile,
        builder: TaskBuilder,
        options: MeasureOptions = DEFAULTS,
        proposers: int | None = None,
        rounds_at_once: int = 4,
    ) -> None:
        need_measurable(profile)
        super().__init__(profile, WorkerPool(profile, CHILD, proposers or profile.threads, options))
        self._builder, self._options = builder, options
        self._rounds_at_once = rounds_at_once
        self._alone = timing_gpu if profile.target.is_gpu else timing
        self._runner = Worker(CHILD, [options.start(profile).model_dump_json()], profile.threads)
        self._ready_generation: int | None = None
        # A child ends with the thread that started it: rounds have threads of their own.
        self._runs = InterruptibleThreads(1)

    def __enter__(self) -> Self:
        with ExitStack() as undone:
            self._runs.submit(self._runner.start).result()
            undone.callback(self._stop_runner)
            super().__enter__()
            undone.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop_runner()
        super().__exit__(*error)

    def add_task(self, task: Task, module: str) -> None:
        """See `DeviceMeasurer.add_task`."""
        super().add_task(task, module)
        self._builder.add_task(task, module)

    def rounds(self, cold: bool = False) -> Rounds:
        """Rounds of programs, several at once."""
        fail = partial(self._measurement, latencies=())

        def run(program: Program, built: BuiltLibrary, best_s: float | None) -> Measurement:
            return self._runs.submit(self._run, cold, program, built, best_s).result()

        return BuiltRounds(self._builder, run, fail, self._rounds_at_once)

    def measure_each(
        self,
        programs: Sequence[Program],
        incumbent_s: Mapping[str, float] | None = None,
        cold: bool = False,
    ) -> Iterator[Measurement]:
        """Yields each measurement as it is made; see `DeviceMeasurer.measure_each`."""
        rounds = self.rounds(cold)
        try:
            rounds.begin(programs, incumbent_s or {})
            for _ in programs:
                yield rounds.next()
        finally:
            rounds.stop()

    def _stop_runner(self) -> None:
        self._runner.close()
        self._runs.shutdown(cancel_futures=True)
        self._runner.stop()

    def _run(
        self, cold: bool, program: Program, built: BuiltLibrary, best_s: float | None
    ) -> Measurement:
        self._runner.restart_above(self._options.restart_bytes)
        if self._ready_generation != self._runner.generation:
            self._runner.wait_ready()  # TVM loads for longer than a program runs
            self._ready_generation = self._runner.generation
        run = RunProgram(program=program.key, incumbent_s=best_s, cold=cold)
        with tempfile.TemporaryDirectory(prefix="hetfeat-run-") as folder:
            load = LoadProgram(program=program.key, **built.written_to(Path(folder)))
            try:
                with self._alone():
                    self._runner.ask(load, self._options.run_timeout_s)
                    found: Seconds = self._runner.ask(run, self._options.run_timeout_s)
                latencies = latencies_of(found, program.task, self.profile)
            except (Lost, RequestFailed) as failed:
                return self._measurement(program, failed.kind)
            except DataError:
                return self._measurement(program, "run")
        return self._measurement(program, None, latencies)

    def _measurement(
        self, program: Program, error: ErrorKind | None, latencies: Sequence[float] = ()
    ) -> Measurement:
        return make_measurement(program, self.profile.name, latencies, error)


class GpuMeasurer(ElsewhereMeasurer):
    """Measures on the NVIDIA GPU of this machine, all of whose cores propose and build meanwhile.

    Args:
        profile: Profile of the device.
        builders: Number of children that build, and of those that propose; default None for one a
            core.
        options: Settings of measuring on this machine, default `local.DEFAULTS`.

    Raises:
        RequestError: No NVIDIA GPU that is here.
    """

    def __init__(
        self,
        profile: DeviceProfile,
        builders: int | None = None,
        options: MeasureOptions = DEFAULTS,
    ) -> None:
        count = builders or host.usable_cores()
        self._pool_builder = PoolBuilder(profile, count, options)
        super().__init__(profile, self._pool_builder, options, count, max(4, count))

    def __enter__(self) -> Self:
        with ExitStack() as undone:
            undone.enter_context(self._pool_builder)
            super().__enter__()
            undone.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._pool_builder.__exit__(*error)
