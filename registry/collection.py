"""Collects records of networks, with progress, and logs the run."""

import os
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hetfeat.dataset.store import RecordStore
from hetfeat.devices.probe import find_profile
from hetfeat.devices.profile import DeviceProfile
from hetfeat.measure.local import LocalMeasurer
from hetfeat.records import Task
from hetfeat.tune.collect import Progress, collect
from hetfeat.workloads.networks import load_network
from registry import tracking

SECONDS_A_LINE = 10.0
"""How often progress is shown where standard error is no terminal."""


def collect_networks(
    device: str, networks: tuple[str, ...], programs_per_task: int, out: Path, seed: int
) -> dict[str, Any]:
    """Does the whole of `hetfeat collect`.

    Ctrl-C ends it; everything measured is in the store, and the same command goes on from there.

    Returns:
        What `--json` prints.
    """
    store, profile, tasks, modules = prepare(find_profile(device), networks, out)
    tags = {"device": profile.name, "networks": ",".join(networks)}
    with tracking.tracked_run(f"collect {profile.name}", tags):
        tracking.log_resolved(
            {"device": profile.name, "programs_per_task": programs_per_task, "seed": seed}
        )
        progress = measure(store, profile, tasks, modules, programs_per_task, seed)
        summary = {
            "programs": progress.programs,
            "failed": progress.failed,
            "tasks": progress.tasks,
            "seconds": progress.seconds,
            "programs_per_s": progress.programs / progress.seconds,
        }
        _log(summary, store)
    return {
        **summary,
        "known_before": progress.known,
        "device": profile.name,
        "dataset_digest": store.digest(),
        "out": out,
    }


def prepare(
    profile: DeviceProfile, networks: tuple[str, ...], out: Path
) -> tuple[RecordStore, DeviceProfile, dict[str, Task], dict[str, str]]:
    """What `measure` needs: store, the device as it knows it, tasks and their modules by hash."""
    imported = _imported(networks)  # a wrong name shows before anything is written
    store = RecordStore.create(out)
    # One store, one set of figures for a device.
    profile = store.devices().get(profile.name, profile)
    return store, profile, *_tasks(imported, profile, store)


def _imported(networks: tuple[str, ...]) -> dict[str, Any]:
    """The networks as Relax modules, by their names in the store."""
    from hetfeat.workloads.tvm import import_network

    loaded = [load_network(name) for name in networks]
    return {network.name: import_network(network) for network in loaded}


def _tasks(
    imported: dict[str, Any], profile: DeviceProfile, store: RecordStore
) -> tuple[dict[str, Task], dict[str, str]]:
    """Distinct tasks of all networks and their modules, by hash; kept in the store."""
    from hetfeat.workloads.tvm import as_target, extract_tasks, lower, save_workload

    target = as_target(profile.target)
    tasks: dict[str, Task] = {}
    modules: dict[str, str] = {}
    for name, module in imported.items():
        found = extract_tasks(lower(module, target), target)
        own = {task.task.hash: save_workload(task.module) for task in found}
        store.add_network(name, {t.task.hash: t.weight for t in found}, own)
        tasks |= {task.task.hash: task.task for task in found}
        modules |= own
    store.add_device(profile)
    return tasks, modules


def measure(
    store: RecordStore,
    profile: DeviceProfile,
    tasks: dict[str, Task],
    modules: dict[str, str],
    programs_per_task: int,
    seed: int,
) -> Progress:
    """Measures until every task has its programs; what the store holds counts."""
    progress = Progress()
    shown = tqdm(
        total=len(tasks) * programs_per_task,
        unit="program",
        file=sys.stderr,
        mininterval=0.5 if sys.stderr.isatty() else SECONDS_A_LINE,
        disable=bool(os.environ.get("HETFEAT_QUIET")),
    )
    with LocalMeasurer(profile) as measurer, shown:
        for task in tasks.values():
            measurer.add_task(task, modules[task.hash])
        try:
            for progress in collect(store, measurer, tasks.values(), programs_per_task, seed):
                shown.n = progress.known + progress.programs
                shown.update(0)
        finally:
            store.compact()
    return progress


def _log(summary: dict[str, Any], store: RecordStore) -> None:
    import mlflow

    mlflow.log_metrics({key: float(value) for key, value in summary.items()})
    dataset = tracking.dataset_of(store.path, store.digest(), store.path.name)
    mlflow.log_input(dataset, context="collected", tags={"digest": store.digest()})
