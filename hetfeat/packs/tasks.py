"""The tasks that a pack is of: those of networks, or those of a store that goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hetfeat.dataset.store import RecordStore
from hetfeat.deploy.precision import FLOAT32, half_of, slug_in
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import RequestError
from hetfeat.records import Task
from hetfeat.workloads.convolution_variants import count_occurrences, extract_variant_tasks
from hetfeat.workloads.library_errors import refusals
from hetfeat.workloads.networks import load_network, split_batch
from hetfeat.workloads.winograd import TRANSFORMS


@dataclass(frozen=True)
class PackTasks:
    """Tasks, and which networks have them.

    Attributes:
        tasks: Tasks by hash.
        modules: Module of each, as `save_workload` writes it, by hash.
        networks: Occurrences of tasks, by network and task hash.
    """

    tasks: Mapping[str, Task]
    modules: Mapping[str, str]
    networks: Mapping[str, Mapping[str, int]]


def tasks_of_networks(
    names: Sequence[str], profile: DeviceProfile, precision: str = FLOAT32
) -> PackTasks:
    """The tasks of networks in every variant of their convolutions.

    Args:
        names: Names of the networks.
        profile: Profile of the device.
        precision: `float32`, the default, or `float16`.

    Raises:
        RequestError: There is no such network.
    """
    from hetfeat.workloads.relax import as_target, import_network, in_layout, save_workload

    target = as_target(profile.target)
    tasks: dict[str, Task] = {}
    modules: dict[str, str] = {}
    networks: dict[str, dict[str, int]] = {}
    for name in names:
        plain, batch = split_batch(name)
        network = load_network(plain, batch)
        with refusals(name):
            module = in_layout(import_network(network), target, half=half_of(precision))
            found = extract_variant_tasks(module, target, TRANSFORMS)
        tasks |= {task.task.hash: task.task for task in found}
        modules |= {task.task.hash: save_workload(task.module) for task in found}
        key = slug_in(network.name, precision) + (f"@{batch}" if batch > 1 else "")
        networks[key] = count_occurrences(found)
    return PackTasks(tasks, modules, networks)


def tasks_of_store(store: RecordStore) -> PackTasks:
    """The tasks of the networks that a store knows.

    Raises:
        RequestError: It knows none.
    """
    from hetfeat.workloads.relax import describe, load_workload

    networks, workloads = store.networks(), store.workloads()
    wanted = {task for weights in networks.values() for task in weights} & workloads.keys()
    if not wanted:
        raise RequestError(
            f"record store '{store.path}', which knows no network's tasks",
            "one that `hetfeat collect` or `hetfeat pack import` wrote",
            "name networks with --network",
        )
    modules = {task: workloads[task] for task in sorted(wanted)}
    tasks = {task: describe(load_workload(module)) for task, module in modules.items()}
    return PackTasks(tasks, modules, networks)
