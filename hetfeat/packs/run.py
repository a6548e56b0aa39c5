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

from hetfeat.dataset.files import append_lines
from hetfeat.dataset.pack_records import (
    LONGEST_LINE_BYTES,
    RECORDS_FORMAT,
    Line,
    RecordLine,
    RecordsHead,
    TaskLine,
)
from hetfeat.deploy import runtime
from hetfeat.deploy.runtime import BundleError
from hetfeat.devices import host
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError, HetfeatError, RequestError, WorkFailed
from hetfeat.measure.base import make_measurement
from hetfeat.measure.latencies import latencies_of
from hetfeat.measure.machine_lock import timing
from hetfeat.measure.messages import RequestFailed, Start
from hetfeat.measure.timing_options import TimingOptions
from hetfeat.measure.worker import Lost, Worker
from hetfeat.packs.archive import Pack, open_pack
from hetfeat.packs.manifest import PackedProgram, PackedTask, program_of
from hetfeat.packs.messages import DescribeDevice, DeviceFacts, RunPacked
from hetfeat.parsing import decode, printable
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
        _check_cpu(path, pack, profile)
        answered = _answered(out, pack)
        child = _Child(profile, options)
        try:
            facts = child.facts()
            _check_device(path, pack, profile, facts)
            records = _Records(out, pack, profile, facts, answered)
            return _Run(pack, profile, child, records, options).run(on_program)
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


def _check_cpu(path: Path, pack: Pack, profile: DeviceProfile) -> None:
    """Refuses a CPU that lacks instructions or cores, before any code of the pack is loaded."""
    facts = {"code_features": pack.manifest.code_features, "device": profile.name}
    try:
        runtime.check_cpu(path, facts)
    except BundleError as error:
        raise RequestError(
            error.parts[0].replace("bundle", "pack", 1), error.parts[1], "run it on its device"
        ) from error
    if (cores := host.usable_cores()) < profile.threads:
        raise RequestError(
            f"pack '{path}' for {profile.threads} threads on {cores} cores",
            "as many cores as threads, or its figures would be another device's",
            "run it on its device, or build it for a profile of fewer threads",
        )


def _check_device(path: Path, pack: Pack, profile: DeviceProfile, facts: DeviceFacts) -> None:
    """Refuses another TVM than built the programs, and a GPU that cannot run their kernels."""
    if facts.tvm != pack.manifest.tvm:
        raise RequestError(
            f"pack '{path}' of TVM {pack.manifest.tvm} on a machine with TVM {facts.tvm}",
            "the TVM that built it",
            f"install apache-tvm=={pack.manifest.tvm} here",
        )
    if not profile.target.is_gpu:
        return
    wanted, found = str(profile.target.get("arch")), facts.arch
    if found is None or not _runs(found, wanted):
        raise RequestError(
            f"pack '{path}' for {wanted} on {found or 'no NVIDIA GPU'}",
            "a GPU of the same major architecture, as late as that or later",
            "run it on its device, or build it for this one",
        )


def _runs(found: str, wanted: str) -> bool:
    """Whether a GPU runs machine code of an architecture: of its own major version alone."""
    own, of_code = (int("".join(filter(str.isdigit, arch))) for arch in (found, wanted))
    exact = not wanted[-1].isdigit()  # code of `sm_90a` runs on that architecture and no other
    return own == of_code or (own // 10 == of_code // 10 and own > of_code and not exact)


def _answered(out: Path, pack: Pack) -> list[RecordsHead | TaskLine | RecordLine]:
    """The lines of records that are there already.

    Raises:
        DataError: They are of another pack, or something else.
    """
    what, action = f"'{out}' with a line that is no record of a pack", "choose another --out"
    texts = out.read_bytes().split(b"\n")[:-1] if out.is_file() else []  # without a torn last line
    lines = [
        decode(text, Line, what=what, action=action, max_bytes=LONGEST_LINE_BYTES) for text in texts
    ]
    if lines and (not isinstance(lines[0], RecordsHead) or lines[0].pack != pack.digest):
        raise DataError(f"'{out}' of another pack", "records of this one", action)
    return lines


class _Records:
    """The file of records, and what it holds."""

    def __init__(
        self,
        out: Path,
        pack: Pack,
        profile: DeviceProfile,
        facts: DeviceFacts,
        lines: list[RecordsHead | TaskLine | RecordLine],
    ) -> None:
        self._out = out
        self._tasks = {line.task for line in lines if isinstance(line, TaskLine)}
        self.held = {(line.task, line.trace) for line in lines if isinstance(line, RecordLine)}
        self.machine = f"{facts.name if profile.target.is_gpu else host.cpu_model()}"
        self.machine += f", Linux {platform.release()}, tvm {facts.tvm}"
        if not lines:
            head = RecordsHead(
                pack_records=RECORDS_FORMAT,
                pack=pack.digest,
                profile=pack.manifest.profile,
                networks=pack.manifest.networks,
                machine=self.machine,
            )
            append_lines(out, [head.model_dump()])

    def append(self, task: PackedTask, measurements: list[Measurement]) -> None:
        """Adds measurements of a task; they are on the disk when this returns."""
        lines: list[dict[str, Any]] = []
        if task.hash not in self._tasks:
            lines.append(TaskLine(task=task.hash, module=task.module).model_dump())
            self._tasks.add(task.hash)
        for measured in measurements:
            line = RecordLine(
                task=task.hash,
                trace=measured.program.trace,
                latencies_s=list(measured.latencies_s),
                error=measured.error,
                unix_s=measured.unix_s,
                versions=measured.versions,
            )
            lines.append(line.model_dump())
        append_lines(self._out, lines)


class _Run:
    """One run of a pack."""

    def __init__(
        self,
        pack: Pack,
        profile: DeviceProfile,
        child: _Child,
        records: _Records,
        options: PackRunOptions,
    ) -> None:
        self._pack, self._profile, self._child = pack, profile, child
        self._records, self._options = records, options
        self._tasks = pack.manifest.tasks_by_hash()
        self._waiting: list[Measurement] = []
        self._any_ran = bool(records.held)
        self._last_error: ErrorKind | None = None

    def run(self, on_program: OnProgram) -> PackRunSummary:
        programs = self._pack.manifest.programs
        left = [p for p in programs if (p.task, p.trace) not in self._records.held]
        known, started = len(programs) - len(left), time.monotonic()
        done = failed = 0
        for task, some in itertools.groupby(left, lambda program: program.task):
            best_s: float | None = None
            with timing():
                for program in some:
                    measured = self._measure(program, best_s)
                    self._keep(self._tasks[task], measured)
                    if (latency_s := measured.latency_s) is None:
                        failed += 1
                    else:
                        best_s = min(best_s or latency_s, latency_s)
                    done += 1
                    on_program(known + done, len(programs))
        self._flush()
        seconds = time.monotonic() - started
        return PackRunSummary(
            done, failed, known, seconds, self._profile.name, self._records.machine
        )

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

    def _keep(self, task: PackedTask, measured: Measurement) -> None:
        """Puts a record on the disk, once it is known that anything runs here at all.

        Raises:
            WorkFailed: Nothing does.
        """
        if self._any_ran:
            self._records.append(task, [measured])
            return
        self._waiting.append(measured)
        if measured.error is None:
            self._any_ran = True
            self._flush()
        elif measured.error != "build" and len(self._waiting) >= self._options.failures_at_first:
            raise WorkFailed(
                f"{len(self._waiting)} programs of which none runs (the last: {measured.error})",
                "a device that runs some",
                "see that its driver and runtime libraries are whole; nothing was recorded",
            )

    def _flush(self) -> None:
        for measured in self._waiting:
            self._records.append(self._tasks[measured.program.task.hash], [measured])
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
