"""Measures the programs of a pack on this machine, with TVM's runtime alone.

    python -m hetfeat.packs.run PACK RECORDS

Each record is on the disk before the next program runs. What the file of records holds already is
not measured again, so that an interrupted run goes on where it was.
"""

import argparse
import itertools
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from hetfeat.devices import host
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError, HetfeatError, WorkFailed
from hetfeat.measure.base import make_measurement
from hetfeat.measure.latencies import latencies_of
from hetfeat.measure.machine_lock import timing
from hetfeat.measure.messages import RequestFailed, Start
from hetfeat.measure.timing_options import TimingOptions
from hetfeat.measure.worker import Lost, Worker
from hetfeat.packs.archive import Pack, open_pack
from hetfeat.packs.device_checks import check_cpu, check_device
from hetfeat.packs.manifest import PackedProgram, program_of
from hetfeat.packs.messages import DescribeDevice, DeviceFacts, RunPacked
from hetfeat.packs.records_file import RecordsFile, read_lines
from hetfeat.parsing import printable
from hetfeat.records import ErrorKind, Measurement

CHILD = "hetfeat.packs.run_child"
ROOT = Path(__file__).resolve().parents[2]
"""Folder that the package lies in: the child finds it there, installed or not."""
OnProgram = Callable[[int, int], None]
"""Called with the number of programs that have a record, and of all."""


@dataclass(frozen=True)
class PackRunOptions:
    """Settings of measuring a pack.

    Attributes:
        timing: Options of timing programs, default those of `TimingOptions`.
        cold: Whether the weights leave the caches before each run, default False.
        run_timeout_s: Longest that loading a program and its runs may take together, in seconds,
            default 10.
        restart_bytes: Bytes of resident memory above which the child is replaced, default 1.5 GiB.
        failures_at_first: Programs that may fail before any ran, default 16: the machine is at
            fault then, and none of them has a record.
    """

    timing: TimingOptions = field(default_factory=TimingOptions)
    cold: bool = False
    run_timeout_s: float = 10.0
    restart_bytes: int = 3 * 2**29
    failures_at_first: int = 16


@dataclass(frozen=True)
class PackRunSummary:
    """What became of a pack.

    Attributes:
        programs: Number of programs measured in this run.
        failed: Number of these that have no latency.
        known_before: Number of programs that had a record before.
        seconds: Wall time of measuring, in seconds.
        device: Name of the device's profile.
        machine: Words for the machine.
    """

    programs: int
    failed: int
    known_before: int
    seconds: float
    device: str
    machine: str

    @property
    def programs_per_s(self) -> float:
        """Programs of this run a second."""
        return self.programs / self.seconds if self.seconds else 0.0


def run_pack(
    path: Path,
    out: Path,
    options: PackRunOptions = PackRunOptions(),
    on_program: OnProgram = lambda done, total: None,
) -> PackRunSummary:
    """Measures what a pack holds and `out` has no record of.

    A program that fails or hangs costs its child; a fresh one goes on after it.

    Args:
        path: Path of the pack.
        out: Path of the file of records; made, or added to.
        options: Settings; those of `PackRunOptions` by default.
        on_program: Function called after each program; by default it does nothing.

    Raises:
        DataError: No pack, or `out` is of another one.
        RequestError: A pack for another device.
        WorkFailed: TVM's runtime does not start here, or no program runs.
    """
    with tempfile.TemporaryDirectory(prefix="pack-") as place:
        pack = open_pack(path, Path(place))
        profile = pack.manifest.device(f"of pack '{path}'")
        check_cpu(path, pack, profile)
        lines = read_lines(out, pack)
        child = _Child(profile, options)
        try:
            facts = child.facts()
            check_device(path, pack, profile, facts)
            machine = f"{facts.name if profile.target.is_gpu else host.cpu_model()}"
            machine += f", Linux {platform.release()}, tvm {facts.tvm}"
            records = RecordsFile(out, lines, pack, machine)
            counts = _PackRun(pack, profile, child, records, options).run(on_program)
            return PackRunSummary(*counts, device=profile.name, machine=machine)
        finally:
            child.close()


class _Child:
    """The process that loads and times; a new one where it was lost."""

    def __init__(self, profile: DeviceProfile, options: PackRunOptions) -> None:
        start = Start(
            target=dict(profile.target),
            cache_line_bytes=profile.cache_line_bytes,
            memory_limit_bytes=psutil.virtual_memory().total // 2,
            timing=options.timing,
        )
        found_in = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        environment = {"TVM_USE_RUNTIME_LIB": "1", "PYTHONPATH": os.pathsep.join(found_in)}
        self._worker = Worker(
            CHILD, [start.model_dump_json()], profile.threads, environment=environment
        )
        self._options = options
        self._ready: int | None = None

    def facts(self) -> DeviceFacts:
        """What the device says of itself.

        Raises:
            WorkFailed: It does not come up.
        """
        self._worker.wait_ready()
        try:
            return self._worker.ask(DescribeDevice(), self._options.run_timeout_s)
        except (Lost, RequestFailed) as error:
            raise WorkFailed(
                f"a device that TVM's runtime does not describe ({printable(str(error))})",
                "its driver, and the runtime libraries of TVM and CUDA",
                "install what is missing",
            ) from error

    def run(self, request: RunPacked) -> tuple[Any, ErrorKind | None]:
        """Seconds of a program, or why there are none."""
        self._worker.restart_above(self._options.restart_bytes)
        if self._ready != self._worker.generation:  # or the time of starting would be its own
            self._worker.wait_ready()
            self._ready = self._worker.generation
        try:
            return self._worker.ask(request, self._options.run_timeout_s), None
        except (Lost, RequestFailed) as error:
            return None, error.kind

    def close(self) -> None:
        """Ends the process."""
        self._worker.stop()


class _PackRun:
    """One run of a pack."""

    def __init__(
        self,
        pack: Pack,
        profile: DeviceProfile,
        child: _Child,
        records: RecordsFile,
        options: PackRunOptions,
    ) -> None:
        self._pack, self._profile, self._child = pack, profile, child
        self._records, self._options = records, options
        self._tasks = pack.manifest.tasks_by_hash()
        self._waiting: list[Measurement] = []
        self._any_ran = bool(records.held)

    def run(self, on_program: OnProgram) -> tuple[int, int, int, float]:
        """The first four fields of the summary."""
        programs = self._pack.manifest.programs
        left = [p for p in programs if (p.task, p.trace) not in self._records.held]
        known, started = len(programs) - len(left), time.monotonic()
        best_s: dict[str, float] = {}
        done = failed = 0
        for task, some in itertools.groupby(left, lambda program: program.task):
            with timing():
                for program in some:
                    measured = self._measure(program, best_s.get(task))
                    self._keep(measured)
                    if (latency_s := measured.latency_s) is None:
                        failed += 1
                    else:
                        best_s[task] = min(best_s.get(task, latency_s), latency_s)
                    done += 1
                    on_program(known + done, len(programs))
        self._flush()
        return done, failed, known, time.monotonic() - started

    def _measure(self, packed: PackedProgram, best_s: float | None) -> Measurement:
        program = program_of(packed, self._tasks[packed.task])
        found, error = None, packed.error
        if packed.library is not None:
            folder, kernels = self._pack.folder, packed.kernels
            request = RunPacked(
                library=str(folder / packed.library),
                kernels=None if kernels is None else str(folder / kernels),
                arguments=list(packed.arguments),
                incumbent_s=best_s,
                cold=self._options.cold,
            )
            found, error = self._child.run(request)
        latencies_s: list[float] = []
        if error is None:
            try:
                latencies_s = latencies_of(found, program.task, self._profile)
            except DataError:
                error = "run"
        return make_measurement(program, self._profile.name, latencies_s, error)

    def _keep(self, measured: Measurement) -> None:
        """Puts a record on the disk, once it is known that anything runs here at all.

        Raises:
            WorkFailed: Nothing does.
        """
        self._waiting.append(measured)
        self._any_ran = self._any_ran or measured.error is None
        if self._any_ran:
            self._flush()
            return
        errors = [each.error for each in self._waiting if each.error != "build"]
        if len(errors) >= self._options.failures_at_first:
            raise WorkFailed(
                f"{len(errors)} programs of which none runs (the last: {errors[-1]})",
                "a device that runs some",
                "see that its driver and runtime libraries are whole; nothing was recorded",
            )

    def _flush(self) -> None:
        for measured in self._waiting:
            self._records.append(self._tasks[measured.program.task.hash], measured)
        self._waiting.clear()


def main(arguments: list[str] | None = None) -> int:
    """Runs a pack from the command line where nothing is installed; returns the exit code."""
    parser = argparse.ArgumentParser(description="Measures the programs of a pack on this machine.")
    parser.add_argument("pack", type=Path)
    parser.add_argument("records", type=Path, help="made, or added to")
    parser.add_argument("--cold", action="store_true", help="empty the caches before each run")
    given = parser.parse_args(arguments)
    started = said = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal said
        if (now := time.monotonic()) - said >= 10 or done == total:
            said = now
            sys.stderr.write(f"{done} of {total} programs, {now - started:.0f} s\n")

    try:
        options = PackRunOptions(cold=given.cold)
        summary = run_pack(given.pack, given.records, options, show)
    except HetfeatError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    facts = {**vars(summary), "programs_per_s": summary.programs_per_s}
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
