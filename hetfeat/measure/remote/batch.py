"""Programs on their way to a device: each is settled once, whatever becomes of servers."""

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hetfeat.devices.fleet.report import ServerReport
from hetfeat.measure.messages import Argument
from hetfeat.records import ErrorKind, Measurement, Program


@dataclass(frozen=True)
class BlameOptions:
    """When a program is given up for the sessions that ended with it, and when a server is.

    Attributes:
        crashes: Number of broken sessions, on servers that had passed their check, before a program
            counts as crashing; default 3.
        timeouts: Number of sessions that hung before a program counts as hanging, default 2: each
            costs a whole time-out.
        nonsense_programs: Number of programs about which a server answered with nonsense before it
            is turned away, default 2.
    """

    crashes: int = 3
    timeouts: int = 2
    nonsense_programs: int = 2


DEFAULTS = BlameOptions()


@dataclass
class Job:
    """A built program.

    Attributes:
        program: Program that was built.
        library: Path of the built library.
        arguments: Shape and type of each of its arguments.
        strikes: Number of sessions it may have ended, default 0.
        suspected: Instance of the server, and the crashes that it had counted, where the last of
            these sessions broke; default None.
    """

    program: Program
    library: Path
    arguments: list[Argument]
    strikes: int = 0
    suspected: tuple[str, int] | None = None


@dataclass
class RemoteBatch:
    """The programs of one call, shared by those who build, those who run, and who waits.

    Attributes:
        open: Number of programs not settled yet.
        best_s: Best latency so far in seconds by task hash, of what is settled.
        cold: Whether weights leave the caches before each run, default False.
        blame_options: Options that say when a program, or a server, is given up; default
            `DEFAULTS`.
        is_lasting: Whether more programs may come once all are settled; default False.
    """

    open: int
    best_s: dict[str, float]
    cold: bool = False
    blame_options: BlameOptions = DEFAULTS
    is_lasting: bool = False
    _ready: deque[Job] = field(default_factory=deque)
    _settled: deque[Measurement] = field(default_factory=deque)
    _suspects: list[Job] = field(default_factory=list)
    _nonsense: dict[str, set[str]] = field(default_factory=dict)
    _last_s: float = field(default_factory=time.monotonic)
    _failure: BaseException | None = None
    _stopped: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def add(self, job: Job) -> None:
        """Offers a program to be run, also one that was taken before."""
        with self._changed:
            self._ready.append(job)
            self._changed.notify_all()

    def begin(self, programs: int, incumbent_s: Mapping[str, float]) -> None:
        """Expects more programs, beside the best latency so far in seconds by task hash."""
        with self._changed:
            self.open += programs
            for task, best_s in incumbent_s.items():
                self.best_s[task] = min(best_s, self.best_s.get(task, best_s))
            self._last_s = time.monotonic()

    def has_work(self) -> bool:
        """Waits until a program is ready to be run, or all is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self.is_over)
            return not self.is_over

    def take(self, wait_s: float) -> Job | None:
        """A program to run; None if all is over, or none is ready for so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self.is_over, wait_s)
            return self._ready.popleft() if self._ready and not self.is_over else None

    def settle(self, measurements: Sequence[Measurement]) -> None:
        """Hands results over."""
        with self._changed:
            self._settled += measurements
            for measurement in measurements:
                keep_best(self.best_s, measurement)
            self._last_s = time.monotonic()
            self.open -= len(measurements)
            self._changed.notify_all()

    def results(self) -> Iterator[Measurement]:
        """Yields what is settled until all is, or raises what went wrong."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._settled or self.is_over)
                if not self._settled:
                    break
                found = self._settled.popleft()
            yield found
        if self._failure is not None:
            raise self._failure

    def next(self, wait_s: float) -> Measurement | None:
        """What is settled next, or raises what went wrong; None if nothing is for so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._settled or self._stopped, wait_s)
            if self._settled:
                return self._settled.popleft()
        if self._failure is not None:
            raise self._failure
        return None

    def fail(self, error: BaseException) -> None:
        """Ends it all; results that are settled are still handed over."""
        with self._changed:
            self._failure = self._failure or error
            self._stopped = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Ends it all: nobody waits for results any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def rest(self, seconds: float) -> None:
        """Waits, unless it is all over."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_over, seconds)

    def blame(self, job: Job, kind: ErrorKind, report: ServerReport) -> bool:
        """Counts a session that ended with a program; whether that is the program's own doing.

        Args:
            job: Job of the program.
            kind: `timeout`, or another name of how the session ended.
            report: Report of the server on itself.
        """
        job.strikes += 1
        if kind != "timeout":  # of which the server knows nothing
            with self._changed:
                job.suspected = report.instance, report.crashes
                self._suspects.append(job)
        options = self.blame_options
        return job.strikes >= (options.timeouts if kind == "timeout" else options.crashes)

    def doubt(self, job: Job, instance: str) -> bool:
        """Counts an answer without sense; whether that is the program's own doing."""
        job.strikes += 1
        with self._changed:
            self._nonsense.setdefault(instance, set()).add(job.program.key)
        return job.strikes >= self.blame_options.crashes

    def is_distrusted(self, instance: str) -> bool:
        """Whether a server has answered with nonsense about several programs."""
        with self._changed:
            return len(self._nonsense.get(instance, ())) >= self.blame_options.nonsense_programs

    def acquit(self, report: ServerReport) -> None:
        """Takes strikes back where the server says that nothing crashed: the link broke."""
        with self._changed:
            for job in self._suspects:
                if job.suspected == (report.instance, report.crashes):
                    job.strikes, job.suspected = job.strikes - 1, None
            self._suspects = [job for job in self._suspects if job.suspected is not None]

    @property
    def silent_s(self) -> float:
        """How long nothing has been settled."""
        return time.monotonic() - self._last_s

    @property
    def is_over(self) -> bool:
        """Whether all are settled, or the rest is given up."""
        return self._stopped or (self.open == 0 and not self.is_lasting)


def keep_best(best_s: dict[str, float], measurement: Measurement) -> None:
    """Takes a measurement into the best latencies by task hash."""
    task, latency_s = measurement.program.task.hash, measurement.latency_s
    if latency_s is not None:
        best_s[task] = min(latency_s, best_s.get(task, latency_s))
