"""The whole of a deployment: lower, tune, build, check, and leave a bundle with its report."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hetfeat.dataset.sidecar_files import quarantine
from hetfeat.dataset.store import RecordStore
from hetfeat.deploy.bench import Latency
from hetfeat.deploy.built import Built, build_tuned, build_untuned
from hetfeat.deploy.bundle import add_facts
from hetfeat.deploy.check_on_device import (
    CHECK_DEFAULTS,
    Checked,
    CheckOptions,
    check_tuned,
    check_untuned,
)
from hetfeat.deploy.lowered import Lowered, lower_networks
from hetfeat.deploy.precision import QUANTISED
from hetfeat.deploy.report import DeployReport
from hetfeat.deploy.request import DeployRequest, Imported, SourceModel, journal_path
from hetfeat.deploy.stages import Stopwatch
from hetfeat.deploy.tuned import Tuned, read_tuned, tune_tasks
from hetfeat.deploy.work import work_folder
from hetfeat.devices.profile import DeviceProfile
from hetfeat.durable import publish_folder, write_file
from hetfeat.errors import WorkFailed
from hetfeat.measure.base import DeviceLost
from hetfeat.measure.remote.session import Quarantine
from hetfeat.models.labels import leaked_records
from hetfeat.records import Measurement, Program, Task

if TYPE_CHECKING:
    from distributed import Client

log = logging.getLogger(__name__)


def deploy(
    request: DeployRequest,
    networks: Sequence[Imported],
    profile: DeviceProfile,
    source: SourceModel | None,
    out: Path,
    check: CheckOptions = CHECK_DEFAULTS,
    cluster: "Client | None" = None,
) -> DeployReport:
    """Tunes and compiles a network for a device and writes the bundle.

    A device with a route over RPC is measured, verified and timed there; compiling is done here.

    Measurements are kept in `OUT.journal`, a record store: an interrupted deployment goes on
    from there. The bundle appears at `out` complete, or not at all, in the place of an older one.

    Args:
        request: Request of the deployment.
        networks: The network for each of its batch sizes.
        profile: Profile of the device.
        source: Cost model to tune with, or None to tune from scratch.
        out: Folder of the bundle.
        check: Settings of the checks on the device; those of `CheckOptions` by default.
        cluster: Client of a cluster whose workers build the programs to measure; none by default.

    Returns:
        The report, as the manifest keeps it.

    Raises:
        DeviceLost: No server of the device could be had to verify on.
        RequestError: The framework's own output is nothing to compare with.
        WorkFailed: The compiled network is wrong, which is mostly told before any tuning, or does
            not run. Where nothing is to be measured, the picked network is the first that is built.
    """

    def put_aside(measurements: Sequence[Measurement], reason: str) -> None:
        """Before the tuning there may be no journal yet."""
        quarantine(RecordStore.create(journal_path(out)).path, measurements, reason)

    watch = Stopwatch()
    for imported in networks:
        _keep_quantised(imported, journal_path(out))
    lowered = lower_networks(request, networks, profile)
    first = _First()
    if check.untuned or request.trials != 0:
        with watch.stage("first check"):
            first = _check_before_tuning(lowered, source, out, put_aside, check)
    with watch.stage("choosing"):
        journal = RecordStore.create(journal_path(out))
        tuned = tune_tasks(lowered, source, journal, cluster, first.programs)
    return _finish(lowered, first, tuned, source, out, put_aside, check, watch)


def _keep_quantised(imported: Imported, journal: Path) -> None:
    """Keeps a network that was quantised for the deployment: its journal is compiled without it."""
    if imported.accuracy is not None:
        store = RecordStore.create(journal)
        write_file(store.path / QUANTISED, imported.network.onnx.SerializeToString())


def compile_found(
    request: DeployRequest,
    networks: Sequence[Imported],
    profile: DeviceProfile,
    source: SourceModel | None,
    out: Path,
    journal: Path,
    check: CheckOptions = CHECK_DEFAULTS,
) -> DeployReport:
    """Compiles what a deployment of this request has found so far; nothing is tuned.

    Args:
        request: Request of the deployment.
        networks: The network for each of its batch sizes.
        profile: Profile of the device.
        source: Cost model that chooses the programs of what was not measured, or None.
        out: Folder of the bundle.
        journal: Journal of the deployment, which perhaps still runs.
        check: Settings of the checks on the device; those of `CheckOptions` by default.

    Returns:
        The report, as the manifest keeps it; it says `interrupted`, for the deployment goes on.

    Raises:
        DeviceLost: As `deploy`.
        RequestError: As `deploy`.
        WorkFailed: As `deploy`.
    """
    watch = Stopwatch()
    put_aside = partial(quarantine, journal)
    lowered = lower_networks(request, networks, profile)
    first = _First()
    if check.untuned:
        with watch.stage("first check"):
            first = _First(_check_untuned(lowered, out, put_aside, check))
    with watch.stage("choosing"):
        tuned = read_tuned(lowered, source, RecordStore.open(journal))
    return _finish(lowered, first, tuned, source, out, put_aside, check, watch)


@dataclass(frozen=True)
class _First:
    """What came of the networks that were built before any tuning; None of what was not.

    Attributes:
        untuned: Latency of the network compiled without tuning.
        picked: Latency of the network of the model's picks.
        programs: Model's picks, by task hash.
    """

    untuned: Latency | None = None
    picked: Latency | None = None
    programs: Mapping[str, Program] | None = None


def _finish(
    lowered: Lowered,
    first: _First,
    tuned: Tuned,
    source: SourceModel | None,
    out: Path,
    put_aside: Quarantine,
    check: CheckOptions,
    watch: Stopwatch,
) -> DeployReport:
    """Builds, checks and publishes what was tuned.

    A network that is wrong, and was not compared without tuning, is now: TVM may have imported it
    wrongly, which its user can mend.
    """
    with work_folder(out) as work:
        with watch.stage("building"):
            built = build_tuned(lowered, tuned, source, work / "tuned")
        try:
            checked = check_tuned(lowered, built.folder, put_aside, check)
        except DeviceLost:
            raise
        except WorkFailed:
            if first.untuned is None:
                _check_untuned(lowered, out, put_aside, check)
            raise
        report = _report(lowered, first, tuned, built, checked, source, watch)
        add_facts(built.folder, {"report": report.as_json()})
        publish_folder(built.folder, out)
    return report


def _check_before_tuning(
    lowered: Lowered,
    source: SourceModel | None,
    out: Path,
    put_aside: Quarantine,
    check: CheckOptions,
) -> _First:
    """Compares a first build before minutes are spent on tuning.

    It is the untuned network. Where that would run for long, it is the network of the model's
    picks, which tuning begins with.
    """
    if check.untuned or source is None or check.runs_soon(lowered):
        return _First(_check_untuned(lowered, out, put_aside, check))
    log.info("building what the model picks, to compare what it computes")
    picked = read_tuned(lowered, source, RecordStore.create(journal_path(out)))
    try:
        with work_folder(out) as work:
            built = build_tuned(lowered, picked, source, work / "picked")
            reference = lowered.references[0]
            latency = check_untuned(lowered.profile, built.folder, reference, put_aside, check)
    except DeviceLost:
        raise
    except WorkFailed:  # wrong by the import, or by a picked program: without those it tells
        return _First(_check_untuned(lowered, out, put_aside, check))
    if latency:
        log.info("without a measurement it takes %.2f ms", latency.median_ms)
    return _First(picked=latency, programs=picked.result.picked or None)


def _check_untuned(
    lowered: Lowered, out: Path, put_aside: Quarantine, check: CheckOptions
) -> Latency | None:
    """Latency of the network compiled without tuning, which must compute what it should."""
    with work_folder(out) as work:
        folder = work / "untuned"
        build_untuned(lowered, folder)
        return check_untuned(lowered.profile, folder, lowered.references[0], put_aside, check)


def _report(
    lowered: Lowered,
    first: _First,
    tuned: Tuned,
    built: Built,
    checked: Checked,
    source: SourceModel | None,
    watch: Stopwatch,
) -> DeployReport:
    importing_s = sum(imported.seconds for imported in lowered.networks)
    stages = {**lowered.seconds, **watch.seconds, **checked.seconds}
    result, latency, verified = tuned.result, checked.latency, checked.verified
    tasks = [task.task for tasks in lowered.tasks_of_each for task in tasks]
    return DeployReport(
        network=lowered.networks[0].network.name,
        device=lowered.profile.name,
        latency_ms=latency.median_ms,
        latency_range_ms=(latency.low_ms, latency.high_ms),
        peers_ms={name: _median_ms(peer) for name, peer in checked.peers.items()},
        untuned_ms=_median_ms(first.untuned),
        picked_ms=_median_ms(first.picked),
        left_out=checked.left_out,
        batches_ms={str(rows): _median_ms(batch) for rows, batch in checked.batches.items()},
        tuning_s=result.seconds,
        build_s=built.seconds,
        total_s=result.earlier_s + watch.total_s,
        trials=result.trials + result.resumed,
        failed=result.failed,
        resumed=result.resumed,
        interrupted=tuned.is_partial,
        stopped=result.ended == "interrupted",
        max_abs_error=verified.max_abs_error,
        tolerance=verified.tolerance,
        model_version=lowered.request.model,
        leaked_records=count_leaked(source, lowered.profile, tasks),
        seconds={"importing": importing_s, **stages},
        precision=lowered.request.precision,
        calibration=lowered.request.calibration,
        accuracy=lowered.networks[0].accuracy,
        peers_error={
            name: peer.error
            for name, peer in checked.peers.items()
            if peer and peer.error is not None
        },
    )


def count_leaked(source: SourceModel | None, profile: DeviceProfile, tasks: Iterable[Task]) -> int:
    """Number of a model's training records that are of these tasks on this very device."""
    keys = (key for task in tasks for key in (task.hash, task.anchor))
    return leaked_records(source.model, profile.name, keys) if source else 0


def _median_ms(latency: Latency | None) -> float | None:
    return latency.median_ms if latency else None
