"""One session at a time, with whichever server of a device is free."""

import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hetfeat.devices.fleet.identity import fast_enough, mismatch, slow_or_fast
from hetfeat.devices.fleet.report import START_IT_ANEW, ServerReport, report_of
from hetfeat.devices.fleet.route import route_of
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError
from hetfeat.measure.base import DeviceLost, make_measurement
from hetfeat.measure.latencies import latencies_of
from hetfeat.measure.messages import CloseSession, Connect, ProbeSpeed, RequestFailed, RunFile
from hetfeat.measure.remote.batch import Job, RemoteBatch, keep_best
from hetfeat.measure.worker import Lost, Worker
from hetfeat.parsing import PositiveFloat, parse, printable
from hetfeat.records import ErrorKind, Measurement

log = logging.getLogger(__name__)

NAMELESS = "nameless"
"""Name of a server's instance where the server says nothing of itself."""

Quarantine = Callable[[Sequence[Measurement], str], None]
"""Callable that takes measurements that must not count, and the reason; none, if a server was
turned away."""


@dataclass(frozen=True)
class SessionOptions:
    """Settings of sessions with servers.

    Attributes:
        run_timeout_s: Longest that sending and running a program may take, in seconds, default 15.
        patience_s: Seconds without any success before the device counts as lost, default 120.
        programs: Most programs of a session, default 8: what a broken one costs, and how long
            other clients wait.
        programs_s: Age in seconds at which a session begins no other program, default 12.
        wait_s: Wait of a session for a program that is still being built, in seconds, default 1.
        margin_s: Seconds beyond all of these before the server ends a session, default 5.
        connect_timeout_s: Longest wait for a free server and its check, in seconds, default 30.
        probe_timeout_s: Longest that a probe, or closing, may take, in seconds, default 10.
        first_rest_s: Pause in seconds after a failure, default 0.5; it doubles with each.
        longest_rest_s: Longest such pause in seconds, default 8.
    """

    run_timeout_s: float = 15.0
    patience_s: float = 120.0
    programs: int = 8
    programs_s: float = 12.0
    wait_s: float = 1.0
    margin_s: float = 5.0
    connect_timeout_s: float = 30.0
    probe_timeout_s: float = 10.0
    first_rest_s: float = 0.5
    longest_rest_s: float = 8.0


DEFAULTS = SessionOptions()


@dataclass(frozen=True)
class Met:
    """What became of the wish for a server.

    Attributes:
        report: Report of a server that is the device and now holds a session; default None.
        turned_away: Instance of a server that is not the device; None, the default, if there was
            none at all.
        trouble: Reason why there is no session, default None.
    """

    report: ServerReport | None = None
    turned_away: str | None = None
    trouble: str | None = None


class SessionRunner:
    """Runs programs of a batch, session after session.

    Args:
        worker: Child that talks to the server, killed when it hangs.
        profile: Profile of the device that the server must be.
        quarantine: Callable that takes measurements that a check discredits.
        options: Settings of sessions, default `DEFAULTS`.
    """

    def __init__(
        self,
        worker: Worker,
        profile: DeviceProfile,
        quarantine: Quarantine,
        options: SessionOptions = DEFAULTS,
    ) -> None:
        self.worker = worker
        self._profile = profile
        self._quarantine = quarantine
        self._options = options
        self._turned_away: str | None = None
        self.rests_until_s = 0.0
        """Time by the monotonic clock: it waited for a server in vain while others did all the
        work."""

    def run(self, batch: RemoteBatch) -> None:
        """Runs programs until all of the batch are settled."""
        options = self._options
        rest_s = options.first_rest_s
        session_s = options.programs_s + options.run_timeout_s + options.margin_s
        while batch.has_work():
            met = self._meet(batch, session_s)
            trouble = met.trouble
            if met.report is not None:
                batch.acquit(met.report)
                trouble = self._share(batch, met.report)
                rest_s = options.first_rest_s
            elif met.turned_away not in (None, self._turned_away):
                self._turned_away = met.turned_away
                self._quarantine((), met.trouble or "")
            if trouble is None or batch.is_over:
                continue
            log.warning("device '%s': %s", self._profile.name, trouble)
            if batch.silent_s > options.patience_s:
                batch.fail(lost(self._profile, trouble))
            batch.rest(random.uniform(0.5, 1.5) * rest_s)  # out of step with what recurs
            rest_s = min(2 * rest_s, options.longest_rest_s)

    def _meet(self, batch: RemoteBatch, session_s: float) -> Met:
        met = connect(self.worker, self._profile, session_s, self._options)
        if met.report is None or not batch.is_distrusted(met.report.instance):
            return met
        close(self.worker, self._options)
        trouble = f"a server whose answers made no sense; {START_IT_ANEW}"
        return Met(turned_away=met.report.instance, trouble=trouble)

    def _share(self, batch: RemoteBatch, report: ServerReport) -> str | None:
        """Runs programs in one session; they count once its last probe agrees with the first.

        Returns:
            The trouble with the session, or None.
        """
        done: list[tuple[Job, Measurement]] = []
        best_s: dict[str, float] = {}  # of this session: the last probe may discredit it
        began_s = time.monotonic()
        job = batch.take(0.0)  # while this one waited for a server, another may have taken it
        while job is not None:
            task = job.program.task.hash
            incumbent_s = min((b[task] for b in (batch.best_s, best_s) if task in b), default=None)
            try:
                latencies, kind = self._run(job, incumbent_s, batch.cold)
            except DataError as nonsense:
                self._discredit(batch, job, report, done, str(nonsense))
                return str(nonsense)
            broken = kind is not None and kind != "run"
            if kind is not None and broken and not batch.blame(job, kind, report):
                batch.add(job)
            else:
                device, there = self._profile.name, report.tvm
                done.append((job, make_measurement(job.program, device, latencies, kind, there)))
                keep_best(best_s, done[-1][1])
            if broken:
                batch.settle([measurement for _, measurement in done])
                return f"a session ended in a program ({kind})"
            age_s = time.monotonic() - began_s
            old = len(done) >= self._options.programs or age_s > self._options.programs_s
            job = None if old else batch.take(self._options.wait_s)
        reason = last_probe(self.worker, self._profile, self._options) if done else None
        close(self.worker, self._options)
        if reason is None:
            batch.settle([measurement for _, measurement in done])
        else:
            self._again(batch, done, reason)
        return reason

    def _discredit(
        self,
        batch: RemoteBatch,
        job: Job,
        report: ServerReport,
        done: list[tuple[Job, Measurement]],
        reason: str,
    ) -> None:
        """Ends a session that answered with nonsense about a program."""
        close(self.worker, self._options)
        self._again(batch, done, reason)
        if batch.doubt(job, report.instance):
            failed = make_measurement(job.program, self._profile.name, (), "crash", report.tvm)
            batch.settle([failed])
        else:
            batch.add(job)

    def _again(self, batch: RemoteBatch, done: list[tuple[Job, Measurement]], reason: str) -> None:
        """Has what must not count measured once more."""
        self._quarantine([measurement for _, measurement in done], reason)
        for again, _ in done:
            batch.add(again)

    def _run(
        self, job: Job, incumbent_s: float | None, cold: bool
    ) -> tuple[Sequence[float], ErrorKind | None]:
        """Latencies, or `run` for a program that failed; any other kind is a lost session.

        Raises:
            DataError: An answer without sense.
        """
        request = RunFile(
            program=job.program.key,
            path=str(job.library),
            arguments=job.arguments,
            incumbent_s=incumbent_s,
            cold=cold,
        )
        try:
            found = self.worker.ask(request, self._options.run_timeout_s)
        except Lost as gone:
            return (), gone.kind
        except RequestFailed:
            return (), "run"
        if found is None:  # the session broke
            return (), "crash"
        return latencies_of(found, job.program.task, self._profile), None


def connect(
    worker: Worker, profile: DeviceProfile, session_s: float, options: SessionOptions = DEFAULTS
) -> Met:
    """Opens a session with a server, which must be the device.

    Args:
        worker: Child that holds the session.
        profile: Profile of the device.
        session_s: Age in seconds at which the server ends it: this side may have gone, or a
            program may hang.
        options: Settings of sessions, default `DEFAULTS`.
    """
    route = route_of(profile)
    request = Connect(
        host=route.tracker.host,
        port=route.tracker.port,
        key=route.key,
        session_s=session_s,
        enough=fast_enough(profile),
    )
    try:
        said = worker.ask(request, options.connect_timeout_s)
    except Lost as gone:
        return Met(trouble=f"no session within {options.connect_timeout_s:g} s ({gone.kind})")
    except RequestFailed as failed:
        return Met(trouble=printable(" ".join(str(failed).split()), None))
    instance = NAMELESS
    try:
        report = report_of(said)
        instance, reason = report.instance, mismatch(profile, report)
    except DataError as error:
        reason = str(error)
    if reason is None:
        return Met(report)
    close(worker, options)
    return Met(turned_away=instance, trouble=reason)


def last_probe(
    worker: Worker, profile: DeviceProfile, options: SessionOptions = DEFAULTS
) -> str | None:
    """Why what a session found out must not count, or None; asked before it ends."""
    try:
        found = worker.ask(ProbeSpeed(enough=fast_enough(profile)), options.probe_timeout_s)
    except Lost:
        return None  # a broken link says nothing against what came before
    except RequestFailed as failed:
        said = printable(" ".join(str(failed).split()))
        return f"a last probe that failed ({said}); {START_IT_ANEW}"
    if found is None:  # the link broke
        return None
    try:
        gflops = parse(found, PositiveFloat, what="the last probe", action=START_IT_ANEW)
    except DataError as error:
        return str(error)
    return slow_or_fast(profile, gflops)


def close(worker: Worker, options: SessionOptions = DEFAULTS) -> None:
    """Ends a session."""
    with contextlib.suppress(Lost, RequestFailed):  # the next session has a new child
        worker.ask(CloseSession(), options.probe_timeout_s)


def lost(profile: DeviceProfile, trouble: str) -> DeviceLost:
    """The error for a device that cannot be had."""
    route = route_of(profile)
    return DeviceLost(
        f"device '{profile.name}', key '{route.key}' at tracker {route.tracker} ({trouble})",
        "a server that is the device",
        "see `hetfeat fleet status`; the same command goes on from what was measured",
    )
