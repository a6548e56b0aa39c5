"""Measures on the servers of a device, as many at a time as there are: builds here, runs there."""

import contextlib
import json
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Self

import psutil

from hetfeat.devices import host
from hetfeat.devices.fleet.control import status
from hetfeat.devices.fleet.route import route_of
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import WorkFailed
from hetfeat.measure.base import in_order, measured, need_cpu
from hetfeat.measure.build_timeout import BUILD_TIMEOUT_S
from hetfeat.measure.machine_lock import building
from hetfeat.measure.remote.batch import Job, RemoteBatch
from hetfeat.measure.remote.session import Lane, Quarantine
from hetfeat.measure.worker import Worker
from hetfeat.measure.worker_pool import RESTART_BYTES, Children
from hetfeat.records import Measurement, Program

CHILD = "hetfeat.measure.remote.child"
LANES = 16
"""Most servers used at a time: each has a child of 300 MB here."""
RUN_TIMEOUT_S = 15.0
PATIENCE_S = 120.0
GRACE_S, REST_S = 0.5, 30.0
"""What still waits for a server so long after all is settled is ended, and pauses."""


class RemoteMeasurer(Children):
    """Proposes and builds in children here, and runs on servers of a tracker.

    A program is never given up because a server was: it is run again, there or elsewhere, and only
    blamed for ending sessions once it has done so repeatedly (`batch.STRIKES`).

    Args:
        profile: The device; its route is RPC.
        quarantine: Where measurements go that a check of the server discredits.
        build_timeout_s: Longest that a build may take.
        run_timeout_s: Longest that sending and running a program may take.
        patience_s: How long nothing may succeed before the device counts as lost.

    Raises:
        RequestError: Not a CPU, a route that cannot be read, or, on entering, no cross-compiler.
        WorkFailed: On entering: no tracker answers.
    """

    def __init__(
        self,
        profile: DeviceProfile,
        quarantine: Quarantine,
        build_timeout_s: float = BUILD_TIMEOUT_S,
        run_timeout_s: float = RUN_TIMEOUT_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        need_cpu(profile)
        super().__init__(profile, CHILD, host.usable_cores(), build_timeout_s)
        self._route = route_of(profile)
        memory = str(psutil.virtual_memory().total // 2)
        arguments = [json.dumps(dict(profile.target)), str(profile.cache_line_bytes), memory]
        self._lanes = [
            Lane(
                Worker(CHILD, arguments, profile.threads),
                profile,
                run_timeout_s,
                patience_s,
                quarantine,
            )
            for _ in range(LANES)
        ]
        self._runs = ThreadPoolExecutor(LANES)

    def __enter__(self) -> Self:
        # Or every program would fail to build.
        host.need_cross_compiler(self.profile.name, self.profile.target)
        status(self._route.tracker)  # where no tracker is, nothing need be started
        for lane in self._lanes[: self._servers()]:
            lane.worker.start()  # importing TVM takes a while
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        for lane in self._lanes:
            lane.worker.close()
        self._runs.shutdown(cancel_futures=True)
        for lane in self._lanes:
            lane.worker.stop()
        super().__exit__(*error)

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
        """Yields what each session measured once the session has ended, each program once."""
        wanted = {program.key: program for program in programs}
        batch = RemoteBatch(len(wanted), dict(incumbent_s or {}), cold)
        queue = deque(wanted.values())
        lanes = self._lanes[: self._servers()]
        lanes = [lane for lane in lanes if lane.rests_until_s < time.monotonic()] or lanes[:1]
        for worker in (*self._workers, *(lane.worker for lane in lanes)):
            worker.restart_above(RESTART_BYTES)
        with tempfile.TemporaryDirectory(prefix="hetfeat-build-") as folder:
            runs = {self._runs.submit(_guarded, batch, lane.run): lane for lane in lanes}
            builds = []
            for index in range(len(self._workers)):
                build = partial(self._build_from, index, queue, Path(folder))
                builds.append(self._threads.submit(_guarded, batch, build))
            try:
                yield from batch.results()
            finally:  # also if the consumer left: nothing that hangs is waited for
                batch.stop()
                self._end(runs, builds)

    def _end(self, runs: Mapping[Future[None], Lane], builds: Sequence[Future[None]]) -> None:
        """Ends the threads of a batch that is over, with the children that they wait for."""
        _, late = wait([*runs, *builds], GRACE_S)
        waiting = [runs[run].worker for run in late if run in runs]
        if any(build in late for build in builds):
            waiting += self._workers
        for lane in (runs[run] for run in late if run in runs):
            lane.rests_until_s = time.monotonic() + REST_S
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
                    arguments, error = self._build(index, program, path=str(library))
                if error is None:
                    batch.add(Job(program, library, arguments))
                else:
                    batch.settle([measured(program, self.profile.name, (), error)])

    def _servers(self) -> int:
        """How many servers there are to measure on at a time, at least one."""
        with contextlib.suppress(WorkFailed):
            for found in status(self._route.tracker):
                if found["device"] == self._route.key:
                    return min(LANES, max(1, int(found["servers"])))
        return 1


def _guarded(batch: RemoteBatch, do: Callable[[RemoteBatch], None]) -> None:
    """What goes wrong in a thread is raised where the results are awaited."""
    try:
        do(batch)
    except BaseException as error:
        batch.fail(error)
