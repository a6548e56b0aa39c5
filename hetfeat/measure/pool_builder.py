"""Builds programs in children of this machine, while its GPU measures."""

import tempfile
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Self

from hetfeat.devices.profile import DeviceProfile
from hetfeat.measure.rounds import BuiltLibrary, OnBuilt
from hetfeat.measure.worker_pool import DEFAULTS, PoolOptions, WorkerPool
from hetfeat.records import ErrorKind, Program, Task

CHILD = "hetfeat.measure.build_child"
LIBRARY, KERNELS = ".so", ".cubin"


class PoolBuilder:
    """A `rounds.Builder` of children that start and end with it.

    Args:
        profile: Profile of the device that programs are built for.
        count: Number of children.
        options: Settings of the children, default `worker_pool.DEFAULTS`.
    """

    def __init__(self, profile: DeviceProfile, count: int, options: PoolOptions = DEFAULTS) -> None:
        self._pool = WorkerPool(profile, CHILD, count, options)
        self._free: SimpleQueue[int] = SimpleQueue()
        for index in range(count):
            self._free.put(index)
        self._open: dict[Future[None], None] = {}

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.__exit__(*error)

    def add_task(self, task: Task, module: str) -> None:
        """Makes a task known by its module, as `save_workload` writes it."""
        self._pool.add_task(task, module)

    def submit(self, program: Program, on_built: OnBuilt) -> None:
        """See `Builder.submit`."""
        future = self._pool.threads.submit(self._hand_over, program, on_built)
        self._open[future] = None
        future.add_done_callback(lambda done: self._open.pop(done, None))

    def check(self) -> None:
        """See `Builder.check`: children that die are replaced."""

    def forget(self) -> None:
        """See `Builder.forget`."""
        for future in list(self._open):
            future.cancel()

    def _hand_over(self, program: Program, on_built: OnBuilt) -> None:
        index = self._free.get()
        try:
            on_built(program, self._build(index, program))
        except BaseException as error:  # whoever waits for the build is told
            on_built(program, error)
        finally:
            self._free.put(index)

    def _build(self, index: int, program: Program) -> BuiltLibrary | ErrorKind:
        self._pool.workers[index].restart_above(self._pool.options.restart_bytes)
        with tempfile.TemporaryDirectory(prefix="hetfeat-build-") as folder:
            library = Path(folder) / f"{program.key}{LIBRARY}"
            arguments, error = self._pool.build_file(index, program, library)
            if arguments is None:
                return error or "build"
            kernels = library.with_suffix(KERNELS)
            machine_code = kernels.read_bytes() if kernels.is_file() else None
            return BuiltLibrary(library.read_bytes(), arguments, machine_code)
