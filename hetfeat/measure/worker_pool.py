"""Persistent children that know tasks: they propose programs, extract features and build."""

import base64
import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt
import psutil

from hetfeat.dataset.schema import FEATURES_PER_STORE
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import WorkFailed
from hetfeat.measure.build_timeout import BuildTimeout, BuildTimeoutOptions
from hetfeat.measure.interruptible import InterruptibleThreads
from hetfeat.measure.machine_lock import building
from hetfeat.measure.messages import (
    AddTask,
    ApplyTraces,
    Argument,
    BuildFile,
    BuildProgram,
    ExtractFeatures,
    Message,
    Proposal,
    RequestFailed,
    SamplePrograms,
    Start,
    VaryPrograms,
)
from hetfeat.measure.timing_options import TimingOptions
from hetfeat.measure.worker import Lost, Worker
from hetfeat.records import ErrorKind, Program, Task
from hetfeat.schedules.registers import unit_of

R = TypeVar("R")
Item = TypeVar("Item")


@dataclass(frozen=True)
class PoolOptions:
    """Settings of a pool of children.

    Attributes:
        build_timeout: Options that say how long builds may take, default those of
            `BuildTimeoutOptions`.
        timing: Options of timing programs in a child, default those of `TimingOptions`.
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
    timing: TimingOptions = field(default_factory=TimingOptions)
    memory_limit_bytes: int | None = None
    restart_bytes: int = 3 * 2**29
    propose_timeout_s: float = 120.0
    propose_attempts: int = 2
    features_at_once: int = 32

    def start(self, profile: DeviceProfile) -> Start:
        """What a child that builds for a device is told at its start."""
        return Start(
            target=dict(profile.target),
            cache_line_bytes=profile.cache_line_bytes,
            memory_limit_bytes=self.memory_limit_bytes or psutil.virtual_memory().total // 2,
            full_rate=unit_of(profile).full_rate,
            timing=self.timing,
        )


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
        start = [options.start(profile).model_dump_json()]
        self.workers = [Worker(child, start, profile.threads) for _ in range(count)]
        self.threads = InterruptibleThreads(len(self.workers))
        self._alone = threading.local()
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
        sample = partial(SamplePrograms, task=task.hash)
        programs = self._propose(task, count, seed, sample)
        if programs is None:  # not a task without programs
            raise WorkFailed(
                f"task {task.hash} ({task.operator}), whose programs no child lives to propose",
                "children that draw programs",
                "leave the network out, or report it with the task's hash",
            )
        return programs

    def vary(self, task: Task, parents: list[str], count: int, seed: int) -> list[Program]:
        """Up to `count` distinct programs a few changes away from the traces `parents`."""
        vary = partial(VaryPrograms, task=task.hash, parents=parents)
        return self._propose(task, count, seed, vary) or []

    def for_each(self, function: Callable[[Item], R], items: Sequence[Item]) -> list[R]:
        """Results of a function of each item, as many at once as there are children.

        What the function proposes comes of one child, which nobody else asks meanwhile: while one
        item is thought about here, the child of another works, and each makes a design space that
        the others need not make. Nothing else may be asked of the pool meanwhile.
        """
        free: SimpleQueue[int] = SimpleQueue()
        for index in range(len(self.workers)):
            free.put(index)

        def on_one(item: Item) -> R:
            self._alone.index = free.get()
            try:
                return function(item)
            finally:
                free.put(self._alone.index)
                del self._alone.index

        threads = InterruptibleThreads(len(self.workers))
        try:
            return list(threads.map(on_one, items))
        finally:
            threads.shutdown(cancel_futures=True)

    def _ask_all(self, ask: Callable[[int, int, int], R], most: int) -> list[R]:
        """Answers of at most so many children; `ask` takes a child, its place, and their number.

        Within `for_each` they are one.
        """
        with building():
            if (index := getattr(self._alone, "index", None)) is not None:
                return [ask(index, 0, 1)]
            count = len(self.workers)
            places = range(min(count, most))
            return list(self.threads.map(lambda place: ask(place, place, count), places))

    def apply(self, task: Task, traces: list[str]) -> list[Program]:
        """The programs of traces without post-processing, less those that do not apply."""

        def ask(index: int, place: int, count: int) -> list[Proposal]:
            request = ApplyTraces(task=task.hash, traces=traces[place::count])
            try:
                return self._ask_of(index, task, request)
            except Lost:
                return []

        shares = self._ask_all(ask, len(traces))
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
        request = ExtractFeatures(task=task.hash, traces=[p.trace for p in programs])
        try:
            values, _ = self.ask(index, task, request, self.options.propose_timeout_s)
        except WorkFailed:  # the task itself does not load
            return programs
        if values is None:
            if len(programs) == 1:
                return programs
            return [done for p in programs for done in self._extract(index, [p])]
        return [
            p if text is None else replace(p, stores=_decode(text))
            for p, text in zip(programs, values, strict=True)
        ]

    def build(self, index: int, program: Program) -> ErrorKind | None:
        """Lets one child build a program and keep it; the kind of the failure, if any."""
        task, key, trace = program.task.hash, program.key, program.trace
        request = BuildProgram(task=task, program=key, trace=trace)
        _, error = self._build(index, program, request)
        return error

    def build_file(
        self, index: int, program: Program, path: Path
    ) -> tuple[list[Argument] | None, ErrorKind | None]:
        """Lets one child build a program into a library; its arguments, or the failure's kind."""
        task, key, trace = program.task.hash, program.key, program.trace
        request = BuildFile(task=task, program=key, trace=trace, path=str(path))
        return self._build(index, program, request)

    def ask(
        self, index: int, task: Task, request: Message[R], timeout_s: float
    ) -> tuple[R | None, ErrorKind | None]:
        """The value of a request or the kind of its failure; the child may be a new one after."""
        try:
            return self._worker_of(index, task).ask(request, timeout_s), None
        except (Lost, RequestFailed) as error:
            return None, error.kind

    def _build(
        self, index: int, program: Program, request: Message[R]
    ) -> tuple[R | None, ErrorKind | None]:
        """A build's answer, as `ask` has it, within the time that builds of its operator get."""
        started = time.monotonic()
        operator = program.task.operator
        allowed_s = self._build_timeout.allowed_s(operator)
        answer = self.ask(index, program.task, request, allowed_s)
        self._build_timeout.learn(operator, time.monotonic() - started)
        return answer

    def _worker_of(self, index: int, task: Task) -> Worker:
        """The child, up and knowing the task."""
        worker = self.workers[index]
        worker.start()
        if self._generation_of.get((index, task.hash)) != worker.generation:
            setup = AddTask(task=task.hash, module=self._tasks[task.hash][1])
            _ask(worker, task, setup, self.options.propose_timeout_s)
            self._generation_of[index, task.hash] = worker.generation
        return worker

    def _ask_of(self, index: int, task: Task, request: Message[R]) -> R:
        worker = self._worker_of(index, task)
        return _ask(worker, task, request, self.options.propose_timeout_s)

    def _propose(
        self, task: Task, count: int, seed: int, request: Callable[..., Message[list[Proposal]]]
    ) -> list[Program] | None:
        """What all children answer to a request for a `count` from a `seed`; None if none does."""

        def ask(index: int, place: int, children: int) -> list[Proposal] | None:
            own = request(count=-(-count // children), seed=seed * 64 + place)
            for _ in range(self.options.propose_attempts):
                try:
                    return self._ask_of(index, task, own)
                except Lost as lost:
                    if lost.kind == "timeout":  # the same draw would hang again
                        break
            return None

        found = [share for share in self._ask_all(ask, len(self.workers)) if share is not None]
        return _programs(task, itertools.chain(*found))[:count] if found else None


def _programs(task: Task, found: Iterable[Proposal]) -> list[Program]:
    """Distinct programs of proposals."""
    made = {trace: Program(task, trace, _decode(features)) for trace, features in found}
    return list(made.values())


def _decode(features: str) -> npt.NDArray[np.float32]:
    values = np.frombuffer(base64.b64decode(features), np.float32)
    return values.reshape(-1, FEATURES_PER_STORE)


def _ask(worker: Worker, task: Task, request: Message[R], timeout_s: float) -> R:
    try:
        return worker.ask(request, timeout_s)
    except RequestFailed as failed:
        raise WorkFailed(
            f"task {task.hash} ({task.operator}): {failed}",
            "a task whose design space TVM can generate",
            "leave the network out, or report it with the task's hash",
        ) from failed
