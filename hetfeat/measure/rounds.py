"""Rounds of programs on their way to a device, several at once where others build them."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from hetfeat.measure.base import DeviceMeasurer
from hetfeat.measure.messages import Argument
from hetfeat.records import ErrorKind, Measurement, Program, Task


@dataclass(frozen=True)
class BuiltLibrary:
    """A program built into a library.

    Attributes:
        library: Bytes of the library.
        arguments: Shape and type of each argument.
        kernels: Machine code of its kernels for a GPU, None by default for a CPU.
    """

    library: bytes
    arguments: list[Argument]
    kernels: bytes | None = None

    def written_to(self, folder: Path) -> dict[str, Any]:
        """Writes it into a folder; returns what `LoadProgram` says of it."""
        library, kernels = folder / "program.so", folder / "program.cubin"
        library.write_bytes(self.library)
        if self.kernels is not None:
            kernels.write_bytes(self.kernels)
        of_kernels = None if self.kernels is None else str(kernels)
        return {"path": str(library), "kernels": of_kernels, "arguments": self.arguments}


OnBuilt = Callable[[Program, BuiltLibrary | ErrorKind | BaseException], None]
"""Callable told, by another thread, what became of a build."""


class Builder(Protocol):
    """Builds programs elsewhere."""

    def submit(self, program: Program, on_built: OnBuilt) -> None:
        """Has a program built; returns at once."""

    def check(self) -> None:
        """Asked now and then by who waits.

        Raises:
            WorkFailed: Nobody builds any more.
        """

    def forget(self) -> None:
        """Lets go of what is not built."""


class TaskBuilder(Builder, Protocol):
    """Builds programs of tasks that it is told of."""

    def add_task(self, task: Task, module: str) -> None:
        """Makes a task known by its module, as `save_workload` writes it."""


class Rounds(Protocol):
    """Rounds of programs that are measured in the order in which they are built.

    Attributes:
        at_once: Number of rounds that may be begun before the first of them is measured.
    """

    at_once: int

    def begin(self, programs: Sequence[Program], incumbent_s: Mapping[str, float]) -> None:
        """Has programs measured; see `Measurer.measure` for `incumbent_s`."""

    def next(self) -> Measurement:
        """The next measurement of a program of any round; waits for it."""

    def stop(self) -> None:
        """Lets go of what is not measured."""


class InTurn:
    """One round after the other, as a measurer measures it.

    Args:
        measurer: Device that builds and measures.
    """

    at_once = 1

    def __init__(self, measurer: DeviceMeasurer) -> None:
        self._measurer = measurer
        self._left: Iterator[Measurement] = iter(())
        self._count = 0

    def begin(self, programs: Sequence[Program], incumbent_s: Mapping[str, float]) -> None:
        """See `Rounds.begin`."""
        self._left, self._count = self._measurer.measure_each(programs, incumbent_s), len(programs)

    def next(self) -> Measurement:
        """See `Rounds.next`; after the last of a round the machine is let go of."""
        found = next(self._left)
        self._count -= 1
        if not self._count:
            next(self._left, None)  # a measurer that is not done holds the lock of timing
        return found

    def stop(self) -> None:
        """See `Rounds.stop`."""
        self._left = iter(())


def rounds_of(measurer: DeviceMeasurer) -> Rounds:
    """The rounds of a measurer, those of others' builders if it has them."""
    made: Callable[[], Rounds] | None = getattr(measurer, "rounds", None)
    return made() if made else InTurn(measurer)


Run = Callable[[Program, BuiltLibrary, float | None], Measurement]
"""Callable that measures a built program beside the best latency so far in seconds."""


class BuiltRounds:
    """Rounds that others build; a thread runs each program as it comes.

    Args:
        builder: Builder of the programs.
        run: Callable that measures a built program.
        fail: Callable that makes a measurement of a program that could not be built.
        at_once: Number of rounds begun at once, default 4: their builds fill the time that the
            slowest build of one takes, and that proposing takes.
    """

    def __init__(
        self,
        builder: Builder,
        run: Run,
        fail: Callable[[Program, ErrorKind], Measurement],
        at_once: int = 4,
    ) -> None:
        self._builder, self._run, self._fail, self.at_once = builder, run, fail, at_once
        self._best_s: dict[str, float] = {}
        self._built: SimpleQueue[tuple[Program, Any] | None] = SimpleQueue()
        self._done: SimpleQueue[Measurement | BaseException] = SimpleQueue()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run_all, daemon=True)
        self._thread.start()

    def begin(self, programs: Sequence[Program], incumbent_s: Mapping[str, float]) -> None:
        """See `Rounds.begin`."""
        for task, best_s in incumbent_s.items():
            self._best_s[task] = min(best_s, self._best_s.get(task, best_s))
        for program in programs:
            self._builder.submit(program, lambda *built: self._built.put(built))

    def next(self) -> Measurement:
        """See `Rounds.next`."""
        while True:
            try:
                found = self._done.get(timeout=1)
            except Empty:
                self._builder.check()
                continue
            if isinstance(found, BaseException):
                raise found
            return found

    def stop(self) -> None:
        """See `Rounds.stop`; what is running ends first."""
        self._is_stopped = True
        self._built.put(None)
        self._thread.join()
        self._builder.forget()

    def _run_all(self) -> None:
        while (taken := self._built.get()) is not None and not self._is_stopped:
            program, built = taken
            try:
                found = self._measure(program, built)
            except BaseException as error:
                self._done.put(error)
                return
            task, latency_s = program.task.hash, found.latency_s
            if latency_s is not None:
                self._best_s[task] = min(latency_s, self._best_s.get(task, latency_s))
            self._done.put(found)

    def _measure(
        self, program: Program, built: BuiltLibrary | ErrorKind | BaseException
    ) -> Measurement:
        if isinstance(built, BaseException):
            raise built
        if isinstance(built, BuiltLibrary):
            return self._run(program, built, self._best_s.get(program.task.hash))
        return self._fail(program, built)
