"""Collects records of networks, with progress, and logs the run."""

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hetfeat.dataset.sidecar_files import evaluation_tasks
from hetfeat.dataset.store import RecordStore
from hetfeat.dataset.tables.joining import check_profiles
from hetfeat.dataset.tables.shared_store import SharedStore, share, store_at
from hetfeat.dataset.tables.uri import Place
from hetfeat.devices.probe import find_profile
from hetfeat.devices.profile import DeviceProfile
from hetfeat.measure.base import need_measurable
from hetfeat.measure.factory import measurers_of
from hetfeat.progress import progress as progress_of
from hetfeat.records import Task
from hetfeat.tune.collect import CollectProgress, Plan, collect
from hetfeat.tune.drift import drift
from hetfeat.workloads.convolution_variants import count_occurrences, extract_variant_tasks
from hetfeat.workloads.library_errors import refusals
from hetfeat.workloads.networks import load_network, split_batch
from registry.tracking import command_run

if TYPE_CHECKING:
    from distributed import Client

Tiles = Sequence[int]


def collect_networks(
    devices: tuple[str, ...],
    networks: tuple[str, ...],
    out: Place,
    plan: Plan,
    tiles: Tiles,
    outputs: tuple[str, ...] = (),
    cluster: "Client | None" = None,
) -> dict[str, Any]:
    """Does the whole of `hetfeat collect`.

    Ctrl-C ends it; everything measured is in the store, and the same command goes on from there.

    Args:
        devices: Names of devices, or files of their profiles.
        networks: Names of networks.
        out: Record store's folder, or URI of a table; made, or added to.
        plan: Amounts to measure of each task.
        tiles: Winograd's tiles that compute convolutions beside computing directly.
        outputs: Names of the outputs of each network that are wanted; none, the default, for all.
        cluster: Client of a cluster whose workers build the programs; default None for none.

    Returns:
        The result, as `--json` prints it.
    """
    found = [find_profile(device) for device in devices]
    profiles = list({profile.name: profile for profile in found}.values())  # `local` and its name
    store, profiles, tasks, modules = prepare(profiles, networks, out, tiles, outputs)
    names = ",".join(profile.name for profile in profiles)
    run_name = command_run.run_name("collect", names, ",".join(networks), seed=plan.seed)
    tags = {"device": names, "networks": ",".join(networks)}
    with command_run.tracked_run(run_name, tags):
        command_run.log_resolved({"device": names} | dataclasses.asdict(plan))
        progress = measure(store, profiles, tasks, modules, plan, cluster)
        summary = {
            "programs": progress.programs,
            "failed": progress.failed,
            "rejected": progress.rejected,
            "tasks": progress.tasks,
            "seconds": progress.seconds,
            "programs_per_s": progress.programs / progress.seconds,
        }
        strayed = drift(store)
        _log(summary | {f"drift.{device}": value for device, value in strayed.items()}, store)
    return {
        **summary,
        "known_before": progress.known,
        "device": names,
        "drift": strayed,
        "evaluation_tasks": evaluation_tasks(store.path),
        "dataset_digest": store.digest(),
        "out": out,
    }


def prepare(
    profiles: Sequence[DeviceProfile],
    networks: tuple[str, ...],
    out: Place,
    tiles: Tiles = (),
    outputs: tuple[str, ...] = (),
) -> tuple[RecordStore, list[DeviceProfile], dict[str, Task], dict[str, str]]:
    """What `measure` needs: store, devices as it knows them, tasks and their modules by hash.

    The tasks are those of the first device's target.

    Raises:
        RequestError: A device cannot be measured from here, or there is no such network.
    """
    for profile in profiles:
        need_measurable(profile)
    imported = _imported(networks, outputs)  # a wrong name shows before anything is written
    store = store_at(out, [profile.name for profile in profiles])
    # One store, one set of figures for a device.
    known = store.devices()
    if isinstance(store, SharedStore):
        named = {profile.name: profile for profile in profiles}
        check_profiles(known, named, f"'{out}'", "--device")
    profiles = [replace(known.get(p.name, p), route=p.route) for p in profiles]
    with store.writing():
        tasks, modules = _tasks(imported, profiles[0], store, tiles)
        for profile in profiles:
            store.add_device(profile)
    return store, profiles, tasks, modules


def _imported(networks: tuple[str, ...], outputs: tuple[str, ...]) -> dict[str, Any]:
    """The networks as Relax modules, by their names in the store: `resnet18`, `resnet18@4`."""
    from hetfeat.workloads.relax import import_network

    wanted = [split_batch(name) for name in networks]
    loaded = [(load_network(name, batch, outputs=outputs), batch) for name, batch in wanted]
    return {
        network.name + (f"@{batch}" if batch > 1 else ""): import_network(network)
        for network, batch in loaded
    }


def _tasks(
    imported: dict[str, Any], profile: DeviceProfile, store: RecordStore, tiles: Tiles
) -> tuple[dict[str, Task], dict[str, str]]:
    """Distinct tasks of all networks and their modules, by hash; kept in the store."""
    from hetfeat.workloads.relax import as_target, in_layout, save_workload

    target = as_target(profile.target)
    tasks: dict[str, Task] = {}
    modules: dict[str, str] = {}
    for name, module in imported.items():
        with refusals(name):
            in_network = extract_variant_tasks(in_layout(module, target), target, tiles)
        texts = {task.task.hash: save_workload(task.module) for task in in_network}
        store.add_network(name, count_occurrences(in_network), texts)
        tasks |= {task.task.hash: task.task for task in in_network}
        modules |= texts
    return tasks, modules


def measure(
    store: RecordStore,
    profiles: Sequence[DeviceProfile],
    tasks: dict[str, Task],
    modules: dict[str, str],
    plan: Plan,
    cluster: "Client | None" = None,
) -> CollectProgress:
    """Measures until every task has its programs; what the store holds counts.

    Programs are built by the workers of a cluster, or here where there is none.
    """
    progress = CollectProgress()
    dense = plan.evaluation_tasks * max(0, plan.evaluation_programs - plan.programs_per_task)
    total = (len(tasks) * plan.programs_per_task + dense) * len(profiles)
    builders = max(profile.threads for profile in profiles)
    with contextlib.ExitStack() as stack:
        stack.enter_context(store.writing())
        show = stack.enter_context(progress_of(total, "program"))
        measurers = measurers_of(profiles, store.path, builders, cluster)
        for measurer in measurers:
            stack.enter_context(measurer)
            for task in tasks.values():
                measurer.add_task(task, modules[task.hash])
        try:
            for progress in collect(store, measurers, list(tasks.values()), plan):
                show(progress.known + progress.programs)
        finally:
            store.compact()
    share(store)
    return progress


def _log(summary: dict[str, Any], store: RecordStore) -> None:
    import mlflow

    mlflow.log_metrics({key: float(value) for key, value in summary.items()})
    command_run.log_deciding({key: summary[key] for key in ("programs", "programs_per_s")})
    command_run.log_records(store.path, store.digest(), "collected")
