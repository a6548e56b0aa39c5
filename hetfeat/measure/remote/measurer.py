"""Measures on the servers of a device, as many at a time as there are: builds here, runs there."""

import contextlib
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from hetfeat.devices import host
from hetfeat.devices.fleet.control import status
from hetfeat.devices.fleet.route import route_of
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import WorkFailed
from hetfeat.measure.base import make_measurement, need_cpu
from hetfeat.measure.cluster_builder import ClusterBuilder
from hetfeat.measure.interruptible import InterruptibleThreads
from hetfeat.measure.machine_lock import building
from hetfeat.measure.pool_measurer import PoolMeasurer
from hetfeat.measure.remote.batch import BlameOptions, Job, RemoteBatch
from hetfeat.measure.remote.session import Quarantine, SessionOptions, SessionRunner
from hetfeat.measure.rounds import BuiltLibrary, InTurn, Rounds
from hetfeat.measure.worker import Worker
from hetfeat.measure.worker_pool import PoolOptions, WorkerPool
from hetfeat.records import ErrorKind, Measurement, Program, Task

CHILD = "hetfeat.measure.remote.child"


@dataclass(frozen=True)
class RemoteOptions(PoolOptions):
    """Settings of measuring on servers.

    Attributes:
        session: Settings of each session, default those of `SessionOptions`.
        blame: Options that say when a program, or a server, is given up; default those of
            `BlameOptions`.
        sessions: Most servers used at a time, default 16: each has a child of 300 MB here.
        grace_s: Seconds that what still waits for a server gets once all is settled, default 0.5.
        rest_s: Pause in seconds of a session that was ended so, default 30.
    """

    session: SessionOptions = field(default_factory=SessionOptions)
    blame: BlameOptions = field(default_factory=BlameOptions)
    sessions: int = 16
    grace_s: float = 0.5
    rest_s: float = 30.0


DEFAULTS = RemoteOptions()


class RemoteMeasurer(PoolMeasurer):
    """Proposes and builds in children here, and runs on servers of a tracker.

    A program is never given up because a server was: it is run again, there or elsewhere, and only
    blamed for ending sessions once it has done so repeatedly (`batch.BlameOptions`).

    Args:
        profile: Profile of the device; its route is RPC.
        quarantine: Callable that takes measurements that a check of the server discredits.
        options: Settings of measuring on servers, default `DEFAULTS`.
        builder: Builder of the programs; default None for the children here.

    Raises:
        RequestError: Not a CPU, a route that cannot be read, or, on entering, no cross-compiler.
        WorkFailed: On entering: no tracker answers.
    """

    def __init__(
        self,
        profile: DeviceProfile,
        quarantine: Quarantine,
        options: RemoteOptions = DEFAULTS,
        builder: ClusterBuilder | None = None,
    ) -> None:
        need_cpu(profile)
        super().__init__(profile, WorkerPool(profile, CHILD, host.usable_cores(), options))
        self._options, self._builder = options, builder
        self._route = route_of(profile)
        arguments = [options.start(profile).model_dump_json()]
        self._runners = [
            SessionRunner(
                Worker(CHILD, arguments, profile.threads), profile, quarantine, options.session
            )
            for _ in range(options.sessions)
        ]
        self._runs = InterruptibleThreads(options.sessions)

    def __enter__(self) -> Self:
        # Or every program would fail to build.
        if self._builder is None:
            host.need_cross_compiler(self.profile.name, self.profile.target)
        status(self._route.tracker)  # where no tracker is, nothing need be started
        for runner in self._runners[: self._servers()]:
            runner.worker.start()  # importing TVM takes a while
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        for runner in self._runners:
            runner.worker.close()
        self._runs.shutdown(cancel_futures=True)
        for runner in self._runners:
            runner.worker.stop()
        super().__exit__(*error)

    def measure_each(
        self,
        programs: Sequence[Program],
        incumbent_s: Mapping[str, float] | None = None,
        cold: bool = False,
    ) -> Iterator[Measurement]:
        """Yields what each session measured once the session has ended, each program once."""
        wanted = {program.key: program for program in programs}
        batch = RemoteBatch(len(wanted), dict(incumbent_s or {}), cold, self._options.blame)
        with self.running(batch) as build:
            build(list(wanted.values()))
            yield from batch.results()

    def rounds(self) -> Rounds:
        """Rounds of programs, several at once where there is a builder."""
        if self._builder is None:
            return InTurn(self)
        return _RemoteRounds(self, self._builder, self._options.blame)

    def add_task(self, task: Task, module: str) -> None:
        """See `DeviceMeasurer.add_task`."""
        super().add_task(task, module)
        if self._builder is not None:
            self._builder.add_task(task, module)

    @contextlib.contextmanager
    def running(self, batch: RemoteBatch) -> Iterator[Callable[[Sequence[Program]], None]]:
        """Runs what is built of a batch meanwhile; gives what has programs of it built."""
        runners = self._runners[: self._servers()]
        runners = [
            runner for runner in runners if runner.rests_until_s < time.monotonic()
        ] or runners[:1]
        self.pool.restart_grown()
        for runner in runners:
            runner.worker.restart_above(self._options.restart_bytes)
        with tempfile.TemporaryDirectory(prefix="hetfeat-build-") as folder:
            runs = {self._runs.submit(_guard, batch, runner.run): runner for runner in runners}
            builds: list[Future[None]] = []

            def build_here(programs: Sequence[Program]) -> None:
                queue = deque(programs)
                for index in range(len(self.pool.workers)):
                    build = partial(self._build_from, index, queue, Path(folder))
                    builds.append(self.pool.threads.submit(_guard, batch, build))

            def build_there(programs: Sequence[Program]) -> None:
                take = partial(self._take_built, batch, Path(folder))
                for program in programs:
                    assert self._builder is not None
                    self._builder.submit(program, take)

            try:
                yield build_there if self._builder else build_here
            finally:  # also if the consumer left: nothing that hangs is waited for
                batch.stop()
                self._end(runs, builds)

    def _take_built(
        self,
        batch: RemoteBatch,
        folder: Path,
        program: Program,
        built: BuiltLibrary | ErrorKind | BaseException,
    ) -> None:
        """Offers what a builder made to the servers."""
        if batch.is_over:
            return
        if isinstance(built, BaseException):
            batch.fail(built)
        elif isinstance(built, BuiltLibrary):
            library = folder / f"{program.key}.so"
            library.write_bytes(built.library)
            batch.add(Job(program, library, built.arguments))
        else:
            batch.settle([make_measurement(program, self.profile.name, (), built)])

    def _end(
        self, runs: Mapping[Future[None], SessionRunner], builds: Sequence[Future[None]]
    ) -> None:
        """Ends the threads of a batch that is over, with the children that they wait for."""
        _, late = wait([*runs, *builds], self._options.grace_s)
        waiting = [runs[run].worker for run in late if run in runs]
        if any(build in late for build in builds):
            waiting += self.pool.workers
        for runner in (runs[run] for run in late if run in runs):
            runner.rests_until_s = time.monotonic() + self._options.rest_s
        for worker in waiting:
            worker.kill()
        wait(late)
        for worker in waiting:
            worker.stop()

    def _build_from(
        self, index: int, queue: deque[Program], folder: Path, batch: RemoteBatch
    ) -> None:
        """Lets one child build from the queue until it is empty."""
        with contextlib.suppress(IndexError):
            while not batch.is_over:
                program = queue.popleft()
                library = folder / f"{program.key}.so"
                with building():
                    arguments, error = self.pool.build_file(index, program, library)
                if arguments is not None:
                    batch.add(Job(program, library, arguments))
                else:
                    batch.settle([make_measurement(program, self.profile.name, (), error)])

    def _servers(self) -> int:
        """How many servers there are to measure on at a time, at least one."""
        with contextlib.suppress(WorkFailed):
            for found in status(self._route.tracker):
                if found["device"] == self._route.key:
                    return min(self._options.sessions, max(1, int(found["servers"])))
        return 1


class _RemoteRounds:
    """Rounds that others build and servers run; see `rounds.Rounds`."""

    def __init__(
        self,
        measurer: RemoteMeasurer,
        builder: ClusterBuilder,
        blame: BlameOptions,
        at_once: int = 4,
    ) -> None:
        self._builder, self.at_once = builder, at_once
        self._batch = RemoteBatch(0, {}, blame_options=blame, is_lasting=True)
        self._stack = contextlib.ExitStack()
        self._build = self._stack.enter_context(measurer.running(self._batch))

    def begin(self, programs: Sequence[Program], incumbent_s: Mapping[str, float]) -> None:
        self._batch.begin(len(programs), incumbent_s)
        self._build(programs)

    def next(self) -> Measurement:
        while (found := self._batch.next(1.0)) is None:
            self._builder.check()
        return found

    def stop(self) -> None:
        self._stack.close()
        self._builder.forget()


def _guard(batch: RemoteBatch, do: Callable[[RemoteBatch], None]) -> None:
    """What goes wrong in a thread is raised where the results are awaited."""
    try:
        do(batch)
    except BaseException as error:
        batch.fail(error)
