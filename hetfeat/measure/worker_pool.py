"""Persistent children that know tasks: they propose programs, extract features and build."""

import base64
import contextlib
import itertools
import json
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import psutil

from hetfeat.dataset.schema import FEATURES_PER_STORE
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import WorkFailed
from hetfeat.measure.build_timeout import BuildTimeout, BuildTimeoutOptions
from hetfeat.measure.machine_lock import building
from hetfeat.measure.worker import Lost, Worker
from hetfeat.records import ErrorKind, Program, Task


@dataclass(frozen=True)
class PoolOptions:
    """Settings of a pool of children.

    Attributes:
        build_timeout: Options that say how long builds may take, default those of
            `BuildTimeoutOptions`.
        memory_limit_bytes: Most bytes of address space of a child, default None for half of the
            memory.
        restart_bytes: Bytes of resident memory above which a child is replaced, default 1.5 GiB: it
            grows by about 1.1 MB with each build (TVM's and LLVM's caches).
        propose_timeout_s: Longest that one request for programs or features may take, in seconds,
            default 120.
        propose_attempts: Number of times that a child lost while it draws programs is asked,
            default 2.
        features_at_once: Number of programs whose features one request extracts, default 32.
    """

    build_timeout: BuildTimeoutOptions = field(default_factory=BuildTimeoutOptions)
    memory_limit_bytes: int | None = None
    restart_bytes: int = 3 * 2**29
    propose_timeout_s: float = 120.0
    propose_attempts: int = 2
    features_at_once: int = 32


DEFAULTS = PoolOptions()


class WorkerPool:
    """Children of a device; one that dies or hangs costs the program it was at.

    Args:
        profile: Profile of the device that programs are built for.
        child: Name of the children's module.
        count: Number of children.
        options: Settings of the pool, default `DEFAULTS`.

    Attributes:
        options: Settings of the pool.
        workers: Children of the pool.
        threads: Pool with one thread for each child.
        built: Child, and its generation, that holds a built program, by the program's key.
        last_runner: Index of the child that last ran a program, None before any did.
    """

    def __init__(
        self,
        profile: DeviceProfile,
        child: str,
        count: int,
        options: PoolOptions = DEFAULTS,
    ) -> None:
        self.options = options
        self.workers = [
            Worker(child, child_arguments(profile, options), profile.threads) for _ in range(count)
        ]
        self.threads = ThreadPoolExecutor(len(self.workers))
        self.built: dict[str, tuple[int, int]] = {}
        self.last_runner: int | None = None
        self._build_timeout = BuildTimeout(options.build_timeout)
        self._tasks: dict[str, tuple[Task, str]] = {}
        self._generation_of: dict[tuple[int, str], int] = {}

    def __enter__(self) -> Self:
        for worker in self.workers:
            worker.start()
        for worker in self.workers:
            worker.wait_ready()
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.workers:
            worker.close()  # threads that still ask, after an interrupt, end at once
        self.threads.shutdown(cancel_futures=True)
        for worker in self.workers:
            worker.stop()

    def add_task(self, task: Task, module: str) -> None:
        """Makes a task known by its module, as `save_workload` writes it."""
        self._tasks[task.hash] = task, module

    def sample(self, task: Task, count: int, seed: int) -> list[Program]:
        """Up to `count` distinct random programs with their per-store features."""
        return self._propose(task, count, seed, {"do": "sample"})

    def vary(self, task: Task, parents: list[str], count: int, seed: int) -> list[Program]:
        """Up to `count` distinct programs a few changes away from the traces `parents`."""
        return self._propose(task, count, seed, {"do": "vary", "parents": parents})

    def apply(self, task: Task, traces: list[str]) -> list[Program]:
        """The programs of traces without post-processing, less those that do not apply."""
        count = len(self.workers)

        def ask(index: int) -> list[Any]:
            request = {"do": "apply", "task": task.hash, "traces": traces[index::count]}
            try:
                return list(
                    _checked(
                        self._worker_of(index, task).ask(request, self.options.propose_timeout_s),
                        task,
                    )
                )
            except Lost:
                return []

        with building():
            shares = list(self.threads.map(ask, range(min(count, len(traces)))))
        dealt = itertools.chain.from_iterable(itertools.zip_longest(*shares))
        return _programs(task, (found for found in dealt if found is not None))

    def with_features(self, programs: Sequence[Program]) -> list[Program]:
        """Recorded programs with their per-store features, where their traces replay.

        Programs of tasks that were not added come back as they are.
        """
        self.restart_grown()
        size = self.options.features_at_once
        known = [program for program in programs if program.task.hash in self._tasks]
        of_task = [list(group) for _, group in itertools.groupby(known, lambda p: p.task)]
        parts = [group[i : i + size] for group in of_task for i in range(0, len(group), size)]
        queue = deque(parts)
        found: dict[str, Program] = {}

        def extract(index: int) -> None:
            with contextlib.suppress(IndexError):
                while True:
                    found.update((p.key, p) for p in self._extract(index, queue.popleft()))

        list(self.threads.map(extract, range(len(self.workers))))
        return [found.get(program.key, program) for program in programs]

    def restart_grown(self) -> None:
        """Ends children that have come to hold too much memory; each is replaced when asked."""
        for worker in self.workers:
            worker.restart_above(self.options.restart_bytes)

    def _extract(self, index: int, programs: list[Program]) -> list[Program]:
        """One child's work; a trace that brings it down has no features, nothing else is lost."""
        task = programs[0].task
        request = {"do": "features", "task": task.hash, "traces": [p.trace for p in programs]}
        try:
            values, error = self.ask(index, task, request, self.options.propose_timeout_s)
        except WorkFailed:  # the task itself does not load
            return programs
        if error is not None:
            if len(programs) == 1:
                return programs
            return [done for p in programs for done in self._extract(index, [p])]
        return [
            p if text is None else replace(p, stores=_decoded(text))
            for p, text in zip(programs, values, strict=True)
        ]

    def build(self, index: int, program: Program, **more: Any) -> tuple[Any, ErrorKind | None]:
        """Lets one child build a program; what it answers, or the kind of the failure."""
        request = {
            "do": "build",
            "task": program.task.hash,
            "program": program.key,
            "trace": program.trace,
        }
        started = time.monotonic()
        operator = program.task.operator
        allowed_s = self._build_timeout.allowed_s(operator)
        answer = self.ask(index, program.task, request | more, allowed_s)
        self._build_timeout.learn(operator, time.monotonic() - started)
        return answer

    def ask(
        self, index: int, task: Task, request: dict[str, Any], timeout_s: float
    ) -> tuple[Any, ErrorKind | None]:
        """The value of a request or the kind of its failure; the child may be a new one after."""
        try:
            reply = self._worker_of(index, task).ask(request, timeout_s)
        except Lost as lost:
            return None, lost.kind
        return reply.get("value"), reply.get("error")

    def _worker_of(self, index: int, task: Task) -> Worker:
        """The child, up and knowing the task."""
        worker = self.workers[index]
        worker.start()
        if self._generation_of.get((index, task.hash)) != worker.generation:
            setup = {"do": "task", "task": task.hash, "module": self._tasks[task.hash][1]}
            _checked(worker.ask(setup, self.options.propose_timeout_s), task)
            self._generation_of[index, task.hash] = worker.generation
        return worker

    def _propose(self, task: Task, count: int, seed: int, request: dict[str, Any]) -> list[Program]:
        share = -(-count // len(self.workers))

        def ask(index: int) -> list[Any] | None:
            wanted = {"task": task.hash, "count": share, "seed": seed * 64 + index}
            for _ in range(self.options.propose_attempts):
                try:
                    reply = self._worker_of(index, task).ask(
                        request | wanted, self.options.propose_timeout_s
                    )
                except Lost as lost:
                    if lost.kind == "timeout":  # the same draw would hang again
                        break
                else:
                    return list(_checked(reply, task))
            return None

        with building():
            found = [s for s in self.threads.map(ask, range(len(self.workers))) if s is not None]
        if not found and request["do"] == "sample":  # not a task without programs
            raise WorkFailed(
                f"task {task.hash} ({task.operator}), whose programs no child lives to propose",
                "children that draw programs",
                "leave the network out, or report it with the task's hash",
            )
        return _programs(task, itertools.chain(*found))[:count]


def child_arguments(profile: DeviceProfile, options: PoolOptions) -> list[str]:
    """Arguments of a child that builds for a device, see `hetfeat.measure.child`."""
    limit_bytes = options.memory_limit_bytes or psutil.virtual_memory().total // 2
    return [json.dumps(dict(profile.target)), str(profile.cache_line_bytes), str(limit_bytes)]


def _programs(task: Task, found: Iterable[Any]) -> list[Program]:
    """Distinct programs from `[trace, features]` pairs."""
    made = {trace: Program(task, trace, _decoded(features)) for trace, features in found}
    return list(made.values())


def _decoded(features: str) -> npt.NDArray[np.float32]:
    values = np.frombuffer(base64.b64decode(features), np.float32)
    return values.reshape(-1, FEATURES_PER_STORE)


def _checked(reply: dict[str, Any], task: Task) -> Any:
    if "error" in reply:
        raise WorkFailed(
            f"task {task.hash} ({task.operator}): {reply.get('message', reply['error'])}",
            "a task whose design space TVM can generate",
            "leave the network out, or report it with the task's hash",
        )
    return reply.get("value")
