"""The first stage of a deployment: networks as tasks, and what they should compute."""

import dataclasses
import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hetfeat.deploy.precision import half_of
from hetfeat.deploy.request import DeployRequest, Imported
from hetfeat.deploy.stages import Stopwatch
from hetfeat.deploy.verify import OF_HALVES, Reference, ToleranceOptions, reference_of
from hetfeat.devices.profile import DeviceProfile
from hetfeat.records import Task
from hetfeat.workloads.convolution_variants import extract_variant_tasks, find_alternatives
from hetfeat.workloads.library_errors import refusals
from hetfeat.workloads.winograd import TRANSFORMS
from hetfeat.workloads.winograd.variants import Alternatives

if TYPE_CHECKING:
    from hetfeat.workloads.relax import NetworkTask

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lowered:
    """A network, for each of its batch sizes, before anything of it is measured.

    Attributes:
        request: Request of the deployment.
        profile: Profile of the device.
        networks: The network for each of its batch sizes.
        modules: Module of each, from `workloads.relax.in_layout`.
        references: Outputs that each should compute.
        tasks_of_each: Tasks of each, in every variant of its convolutions.
        tasks: Tasks of all, each once.
        workloads: Text of each task's TVM module, by the task's hash.
        seconds: Wall time of lowering it and of its references, by stage; default none.
    """

    request: DeployRequest
    profile: DeviceProfile
    networks: Sequence[Imported]
    modules: Sequence[Any]
    references: Sequence[Reference]
    tasks_of_each: Sequence[Sequence["NetworkTask"]]
    tasks: Sequence["NetworkTask"]
    workloads: Mapping[str, str]
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def weights(self) -> dict[Task, int]:
        """Number of times that all batch sizes together run each task."""
        return {task.task: task.weight for task in self.tasks}

    @property
    def alternatives(self) -> Alternatives:
        """Convolution and tile of each task that another variant may replace, by hash."""
        return find_alternatives(self.tasks)


def lower_networks(
    request: DeployRequest, networks: Sequence[Imported], profile: DeviceProfile
) -> Lowered:
    """Lowers a network in every variant, and computes it in its framework.

    Raises:
        RequestError: The framework's own output is nothing to compare with.
    """
    from hetfeat.workloads.relax import as_target, in_layout, save_workload

    target, watch = as_target(profile.target), Stopwatch()
    half = half_of(request.precision)
    tolerance = OF_HALVES.get(request.precision, ToleranceOptions())
    with refusals(request.network):
        with watch.stage("lowering"):
            modules = [in_layout(imported.module, target, half=half) for imported in networks]
        with watch.stage("references"):
            references = [
                reference_of(of.network, request.seed, module=of.module, tolerance=tolerance)
                for of in networks
            ]
        _warn_of_silence(references[0])
        with watch.stage("lowering"):
            of_each = [extract_variant_tasks(module, target, TRANSFORMS) for module in modules]
            tasks = merge_tasks(of_each)
            workloads = {task.task.hash: save_workload(task.module) for task in tasks}
    return Lowered(
        *(request, profile, networks, modules, references, of_each, tasks, workloads),
        seconds=watch.seconds,
    )


def _warn_of_silence(reference: Reference) -> None:
    if not reference.tells:
        log.warning(
            "verified little: output %s of '%s' hardly changes with the inputs (%s)",
            ", ".join(reference.silent),
            reference.network.name,
            "; ".join(reference.values),
        )


def merge_tasks(tasks_of_each: Sequence[Sequence["NetworkTask"]]) -> list["NetworkTask"]:
    """The tasks of all batch sizes, each once, with the sum of its weights."""
    merged: dict[str, NetworkTask] = {}
    for task in itertools.chain.from_iterable(tasks_of_each):
        same = merged.get(task.task.hash)
        weight = task.weight + (same.weight if same else 0)
        merged[task.task.hash] = dataclasses.replace(task, weight=weight)
    return list(merged.values())
