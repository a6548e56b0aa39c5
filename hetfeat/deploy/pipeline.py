"""The whole of a deployment: tune, compile, verify, compare, and leave a bundle."""

import dataclasses
import itertools
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.sidecar_files import quarantine
from hetfeat.dataset.store import RecordStore
from hetfeat.deploy import bundle
from hetfeat.deploy.bench import Latency
from hetfeat.deploy.check_on_device import prove, try_untuned
from hetfeat.deploy.request import REQUEST, DeployRequest, Imported, SourceModel, journal_path
from hetfeat.deploy.verify import Reference, reference_of
from hetfeat.deploy.work import work_folder
from hetfeat.devices.profile import DeviceProfile
from hetfeat.durable import publish_folder, write_file
from hetfeat.measure.base import DeviceMeasurer
from hetfeat.measure.factory import measurer_of
from hetfeat.measure.machine_lock import building
from hetfeat.measure.remote.session import Quarantine
from hetfeat.models.labels import leaked_records
from hetfeat.progress import At, progress
from hetfeat.records import Measurement, Program, Task
from hetfeat.transfer.schedule_library import ScheduleLibrary
from hetfeat.tune.finalists import measure_finalists, select_finalists
from hetfeat.tune.scheduler import TaskState
from hetfeat.tune.session import BUDGETS, Budget, TuningProgress
from hetfeat.tune.tuner import OnRound, TuningOptions, TuningResult, tune
from hetfeat.workloads.convolution_variants import (
    count_occurrences,
    extract_variant_tasks,
    find_alternatives,
    lower_fastest,
)
from hetfeat.workloads.library_errors import refusals
from hetfeat.workloads.winograd import TRANSFORMS
from hetfeat.workloads.winograd.variants import Alternatives, network_s

if TYPE_CHECKING:
    from hetfeat.workloads.relax import NetworkTask

log = logging.getLogger(__name__)


def deploy(
    request: DeployRequest,
    networks: Sequence[Imported],
    profile: DeviceProfile,
    source: SourceModel | None,
    out: Path,
    journal: Path | None = None,
    peers: Sequence[str] | None = None,
) -> dict[str, Any]:
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
        journal: Journal of another deployment of this request, perhaps one that still runs; default
            None. Nothing is tuned then, and what it has found so far is compiled.
        peers: Engines to compare with, each of which loads the network by its name; default None
            for all.

    Returns:
        The report, as the manifest keeps it.

    Raises:
        DeviceLost: No server of the device could be had to verify on.
        RequestError: The framework's own output is nothing to compare with.
        WorkFailed: The compiled network is wrong, which is mostly told before any tuning, or does
            not run.
    """
    from hetfeat.workloads.relax import as_target, extract_tasks, in_layout

    started = time.monotonic()
    target = as_target(profile.target)
    with refusals(request.network):
        prepared = [in_layout(found.module, target) for found in networks]
        references = [reference_of(found.network, request.seed) for found in networks]
        ways = [extract_variant_tasks(module, target, TRANSFORMS) for module in prepared]
    sample = references[0].samples[0]

    def keep(measurements: Sequence[Measurement], reason: str) -> None:
        """Before the tuning there may be no journal yet."""
        quarantine(journal or RecordStore.create(journal_path(out)).path, measurements, reason)

    untuned = _untuned(networks[0], prepared[0], profile, references[0], out, keep)
    tuned, cold_s = _tune(request, networks, ways, profile, source, out, journal)

    build_started = time.monotonic()
    log.info("building")
    taken_s = {**tuned.expected_s, **cold_s}
    lowered = [
        lower_fastest(module, target, of, taken_s)
        for module, of in zip(prepared, ways, strict=True)
    ]
    tasks = [extract_tasks(module, target) for module in lowered]
    merged, picked = _merged(tasks), dict(tuned.picked)

    def compiled() -> list[bundle.Variant]:
        programs = picked | {task: found.program for task, found in tuned.best.items()}
        parts = zip(networks, lowered, tasks, strict=True)
        return [_compiled(found, code, of, profile, programs) for found, code, of in parts]

    try:
        variants = compiled()
    except Exception:
        if not _leave_out_what_does_not_build(picked, merged, profile):
            raise
        variants = compiled()
    facts = {
        "network": networks[0].network.name,
        "request": request.as_json(),
        "cost_model": request.model,
        "dataset_digest": source.dataset_digest if source else None,
        "tasks": [_task_facts(task, tuned.best, picked) for task in merged],
        **references[0].facts(),
    }
    with work_folder(out) as work:
        draft = work / "tuned"
        bundle.write_bundle(draft, variants, profile, sample, facts)
        build_s = time.monotonic() - build_started

        proof = prove(request, networks, profile, draft, references, keep, peers)
        report = {
            "network": networks[0].network.name,
            "device": profile.name,
            "latency_ms": proof.latency.median_ms,
            "latency_range_ms": [proof.latency.low_ms, proof.latency.high_ms],
            "peers_ms": {name: _median(found) for name, found in proof.peers.items()},
            "untuned_ms": _median(untuned),
            "batches_ms": {str(batch): _median(found) for batch, found in proof.batches.items()},
            "tuning_s": tuned.seconds,
            "build_s": build_s,
            "total_s": tuned.earlier_s + time.monotonic() - started,
            "trials": tuned.trials + tuned.resumed,
            "failed": tuned.failed,
            "resumed": tuned.resumed,
            # What another deployment has found so far is partial, too: that one goes on.
            "interrupted": tuned.is_partial or journal is not None,
            "stopped": tuned.ended == "interrupted",
            "max_abs_error": proof.verified.max_abs_error,
            "tolerance": proof.verified.tolerance,
            "model_version": request.model,
            "leaked_records": _leaked(source, profile, [t.task for of in ways for t in of]),
        }
        bundle.add_facts(draft, {"report": report})
        publish_folder(draft, out)
    return report


def _untuned(
    found: Imported,
    prepared: Any,
    profile: DeviceProfile,
    reference: Reference,
    out: Path,
    keep: Quarantine,
) -> Latency | None:
    """Latency of the network compiled without tuning, which must compute what it should."""
    from hetfeat.workloads.relax import as_target, into_kernels

    log.info("building without tuning, to compare what it computes")
    plain = _compiled(found, into_kernels(prepared, as_target(profile.target)), [], profile, {})
    with work_folder(out) as work:
        folder = work / "untuned"
        bundle.write_bundle(folder, [plain], profile, reference.samples[0], {})
        return try_untuned(profile, folder, reference, keep)


def _tune(
    request: DeployRequest,
    networks: Sequence[Imported],
    tasks: Sequence[Sequence["NetworkTask"]],
    profile: DeviceProfile,
    source: SourceModel | None,
    out: Path,
    found_by: Path | None,
) -> tuple[TuningResult, dict[str, float]]:
    """The outcome, its best programs chosen once more, and their cold latencies by task."""
    from hetfeat.workloads.relax import save_workload

    merged = _merged(tasks)
    modules = {task.task.hash: save_workload(task.module) for task in merged}
    if found_by:
        journal, budget = RecordStore.open(found_by), Budget(seconds=0, trials_per_task=0)
    else:
        journal, budget = RecordStore.create(journal_path(out)), _budget(request, len(merged))
    alternatives = find_alternatives(merged)
    weights = {task.task: task.weight for task in merged}
    with nullcontext() if found_by else journal.writing():
        if not found_by:
            _note(journal, request, networks, tasks, profile, modules)
        with (
            _measuring(profile, journal, merged, modules) as measurer,
            progress(None, "program") as at,
        ):
            tuned = tune(
                list(weights.items()),
                measurer=measurer,
                journal=journal,
                budget=budget,
                options=TuningOptions(request.search, request.seed),
                model=source.model if source else None,
                library=_library(profile, merged),
                alternatives=alternatives,
                on_round=_on_round(at, weights, budget, alternatives),
            )
        cold_s: dict[str, float] = {}
        if last := select_finalists(tuned.leaders, weights, alternatives):
            log.info("%d of the fastest programs once more, with cold weights", len(last))
            try:
                with _measuring(profile, journal, merged, modules) as measurer:
                    chosen, cold_s = measure_finalists(last, measurer)
                fastest = {task: [found] for task, found in chosen.items()}
                tuned = dataclasses.replace(tuned, leaders={**tuned.leaders, **fastest})
            except KeyboardInterrupt:  # then as they were measured while tuning
                cold_s = {task: found.latency_s or 0.0 for task, found in tuned.best.items()}
                tuned = dataclasses.replace(tuned, ended="interrupted")
        if found_by:
            return tuned, cold_s
        journal.compact()
    if tuned.is_partial:
        log.info("interrupted: compiling with the best found so far")
    return tuned, cold_s


@contextmanager
def _measuring(
    profile: DeviceProfile,
    journal: RecordStore,
    tasks: Sequence["NetworkTask"],
    modules: Mapping[str, str],
) -> Iterator[DeviceMeasurer]:
    """New processes that know the tasks."""
    with measurer_of(profile, journal.path) as measurer:
        for task in tasks:
            measurer.add_task(task.task, modules[task.task.hash])
        yield measurer


def _note(
    journal: RecordStore,
    request: DeployRequest,
    networks: Sequence[Imported],
    tasks: Sequence[Sequence["NetworkTask"]],
    profile: DeviceProfile,
    modules: Mapping[str, str],
) -> None:
    """Keeps in the journal what it is about."""
    journal.add_device(profile)
    for found, own in zip(networks, tasks, strict=True):
        name = found.network.name + (f"@{found.batch}" if found.batch > 1 else "")
        log.info("%s: %d tasks", name, len(own))
        weights = count_occurrences(own)
        journal.add_network(name, weights, {key: modules[key] for key in weights})
    text = json.dumps(request.as_json(), indent=1) + "\n"
    write_file(journal.path / REQUEST, text.encode())


def _library(profile: DeviceProfile, tasks: Sequence["NetworkTask"]) -> ScheduleLibrary:
    """The packaged records, less this very device's of these tasks and of their anchors."""
    withheld = [task.task for task in tasks]
    return ScheduleLibrary.of(RecordStore.open(packaged_store()), profile.name, withheld)


def _merged(tasks: Sequence[Sequence["NetworkTask"]]) -> list["NetworkTask"]:
    """The tasks of all batch sizes, each once."""
    merged: dict[str, NetworkTask] = {}
    for task in itertools.chain.from_iterable(tasks):
        known = merged.get(task.task.hash)
        weight = task.weight + (known.weight if known else 0)
        merged[task.task.hash] = dataclasses.replace(task, weight=weight)
    return list(merged.values())


def _compiled(
    found: Imported,
    lowered: Any,
    tasks: Sequence["NetworkTask"],
    profile: DeviceProfile,
    programs: Mapping[str, Program],
) -> bundle.Variant:
    from hetfeat.deploy.compile import compile_network

    with building():
        compiled = compile_network(lowered, profile, tasks, programs)
    return bundle.Variant(found.batch, compiled.executable, compiled.parameters)


def _leave_out_what_does_not_build(
    picked: dict[str, Program], tasks: Sequence["NetworkTask"], profile: DeviceProfile
) -> bool:
    """Whether any of the programs that nobody has built yet does not; those are left out then."""
    from hetfeat.deploy.compile import builds

    chosen = [(task, picked[task.task.hash]) for task in tasks if task.task.hash in picked]
    failed = [program for task, program in chosen if not builds(task, program, profile)]
    for program in failed:
        del picked[program.task.hash]
        log.warning(
            "the program chosen for %s %s does not build: TVM's default schedule instead",
            program.task.operator,
            program.task.shapes,
        )
    return bool(failed)


def _task_facts(
    task: "NetworkTask", fastest: Mapping[str, Measurement], picked: Mapping[str, Program]
) -> dict[str, Any]:
    best = fastest.get(task.task.hash)
    program = best.program if best else picked.get(task.task.hash)
    return {
        "task": task.task.hash,
        "operator": task.task.operator,
        "shapes": task.task.shapes,
        "weight": task.weight,
        "latency_s": best.latency_s if best else None,
        "trace": program.trace if program else None,
    }


def _budget(request: DeployRequest, tasks: int) -> Budget:
    budget = BUDGETS[request.effort]
    if request.trials is None:
        return dataclasses.replace(budget, trials=budget.trials_per_task * tasks)
    return dataclasses.replace(budget, trials=request.trials)


def _on_round(
    at: At, weights: Mapping[Task, int], budget: Budget, alternatives: Alternatives
) -> OnRound:
    """Says how far tuning has come, in trials, and what the kernels add up to."""
    best: dict[str, float] = {}

    def on_round(reached: TuningProgress, state: TaskState) -> None:
        if state.best and state.best.latency_s is not None:
            best[state.task.hash] = state.best.latency_s
        kernels_ms = 1e3 * network_s(weights, best, alternatives)
        left_s = max(0.0, budget.seconds - reached.seconds)
        tasks = f"{len(best)} of {len(weights)} tasks"
        note = f"{left_s:.0f} s left at most, {tasks}, kernels {kernels_ms:.2f} ms"
        resumed = reached.resumed
        at(reached.trials, f"{resumed} before, {note}" if resumed else note)

    return on_round


def _leaked(source: SourceModel | None, profile: DeviceProfile, tasks: Iterable[Task]) -> int:
    keys = (key for task in tasks for key in (task.hash, task.anchor))
    return leaked_records(source.model, profile.name, keys) if source else 0


def _median(latency: Latency | None) -> float | None:
    return latency.median_ms if latency else None
