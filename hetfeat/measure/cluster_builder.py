"""Builds programs on the workers of a Dask cluster, while devices measure."""

import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetfeat.devices.host import need_cross_compiler
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import WorkFailed
from hetfeat.measure.machine_lock import building
from hetfeat.measure.rounds import BuiltLibrary, OnBuilt
from hetfeat.measure.worker_pool import DEFAULTS, PoolOptions, WorkerPool
from hetfeat.records import ErrorKind, Program, Task

if TYPE_CHECKING:
    from distributed import Client

CHILD = "hetfeat.measure.remote.child"
_OF_THREAD = threading.local()
"""On a worker: what each of its threads builds with."""


class ClusterBuilder:
    """A `rounds.Builder` whose programs are built by Dask workers, each in a child of its own.

    A worker that is lost costs its builds, which others make again.

    Args:
        client: Client of the cluster.
        profile: Profile of the device that programs are built for.
        options: Settings of the children, default `worker_pool.DEFAULTS`.
        patience_s: Seconds without any worker after which nobody is waited for, default 120.
    """

    def __init__(
        self,
        client: "Client",
        profile: DeviceProfile,
        options: PoolOptions = DEFAULTS,
        patience_s: float = 120.0,
    ) -> None:
        self._client, self._profile, self._options = client, profile, options
        self._patience_s, self._last_s = patience_s, time.monotonic()
        self._modules: dict[str, str] = {}
        self._open: dict[Any, None] = {}

    def add_task(self, task: Task, module: str) -> None:
        """Makes a task known by its module, as `save_workload` writes it."""
        self._modules[task.hash] = module

    def submit(self, program: Program, on_built: OnBuilt) -> None:
        """See `Builder.submit`."""
        task, module = program.task, self._modules[program.task.hash]
        future = self._client.submit(
            build_here, self._profile, self._options, task, module, program.trace, pure=False
        )
        self._open[future] = None  # Dask forgets what nobody holds
        future.add_done_callback(partial(self._hand_over, program, on_built))

    def check(self) -> None:
        """See `Builder.check`."""
        if self._client.nthreads():
            self._last_s = time.monotonic()
        elif time.monotonic() - self._last_s > self._patience_s:
            raise _lost("no worker")

    def forget(self) -> None:
        """See `Builder.forget`."""
        self._client.cancel(list(self._open))

    def _hand_over(self, program: Program, on_built: OnBuilt, future: Any) -> None:
        self._open.pop(future, None)
        on_built(program, _outcome(future))


def _outcome(future: Any) -> BuiltLibrary | ErrorKind | BaseException:
    from distributed.scheduler import KilledWorker

    if future.status == "finished":
        built: BuiltLibrary | ErrorKind = future.result()
        return built
    if future.status != "error":
        return _lost(future.status)
    error: BaseException = future.exception()
    return "crash" if isinstance(error, KilledWorker) else error


def _lost(why: str) -> WorkFailed:
    return WorkFailed(
        f"builders that were lost ({why})",
        "a Dask scheduler and its workers",
        "start them again; the same command goes on from what was measured",
    )


def build_here(
    profile: DeviceProfile, options: PoolOptions, task: Task, module: str, trace: str
) -> BuiltLibrary | ErrorKind:
    """Builds a program on a worker, in a child that this thread of it keeps.

    Raises:
        RequestError: There is no cross-compiler for the device.
    """
    need_cross_compiler(profile.name, profile.target)
    pools: dict[str, WorkerPool] = vars(_OF_THREAD).setdefault("pools", {})
    start = options.start(profile).model_dump_json()
    if start not in pools:
        pools[start] = WorkerPool(profile, CHILD, 1, options)
    pool = pools[start]
    pool.add_task(task, module)
    pool.restart_grown()
    program = Program(task, trace)
    with tempfile.TemporaryDirectory(prefix="hetfeat-build-") as folder:
        library = Path(folder) / f"{program.key}.so"
        with building():
            arguments, error = pool.build_file(0, program, library)
        if arguments is None:
            return error or "build"
        return BuiltLibrary(library.read_bytes(), arguments)
