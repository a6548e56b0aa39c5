"""The third stage of a deployment: tuned programs compiled into a folder."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetfeat.deploy import bundle
from hetfeat.deploy.lowered import Lowered, merge_tasks
from hetfeat.deploy.request import Imported, SourceModel
from hetfeat.deploy.tuned import Tuned
from hetfeat.devices.profile import DeviceProfile
from hetfeat.measure.machine_lock import building
from hetfeat.records import Measurement, Program
from hetfeat.workloads.convolution_variants import lower_fastest

if TYPE_CHECKING:
    from hetfeat.workloads.relax import NetworkTask

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Built:
    """A bundle that nobody has run yet.

    Attributes:
        folder: Folder of the bundle, beside the one that it will become.
        seconds: Wall time of compiling and writing it, in seconds.
    """

    folder: Path
    seconds: float


def build_untuned(lowered: Lowered, folder: Path) -> None:
    """Writes a bundle of the first batch size with TVM's default schedules."""
    from hetfeat.workloads.relax import as_target, into_kernels

    log.info("building without tuning, to compare what it computes")
    kernels = into_kernels(lowered.modules[0], as_target(lowered.profile.target))
    variant = _compile(lowered.networks[0], kernels, [], lowered.profile, {})
    sample = lowered.references[0].samples[0]
    bundle.write_bundle(folder, [variant], lowered.profile, sample, {})


def build_tuned(lowered: Lowered, tuned: Tuned, source: SourceModel | None, folder: Path) -> Built:
    """Compiles each batch size with the fastest variant of each convolution, into `folder`."""
    from hetfeat.workloads.relax import as_target, extract_tasks

    started = time.monotonic()
    log.info("building")
    profile, target = lowered.profile, as_target(lowered.profile.target)
    kernels = [
        lower_fastest(module, target, tasks, tuned.expected_s)
        for module, tasks in zip(lowered.modules, lowered.tasks_of_each, strict=True)
    ]
    tasks_of_each = [extract_tasks(module, target) for module in kernels]
    tasks, picked = merge_tasks(tasks_of_each), tuned.result.picked

    def compile_all() -> list[bundle.Variant]:
        measured = {task: best.program for task, best in tuned.result.best.items()}
        parts = zip(lowered.networks, kernels, tasks_of_each, strict=True)
        return [_compile(*part, profile, {**picked, **measured}) for part in parts]

    try:
        variants = compile_all()
    except Exception:
        sound = _leave_out_unsound(picked, tasks, profile)
        if len(sound) == len(picked):
            raise
        picked = sound
        variants = compile_all()
    facts = {
        "network": lowered.networks[0].network.name,
        "request": lowered.request.as_json(),
        "cost_model": lowered.request.model,
        "dataset_digest": source.dataset_digest if source else None,
        "tasks": [_task_facts(task, tuned.result.best, picked) for task in tasks],
        **lowered.references[0].facts(),
    }
    bundle.write_bundle(folder, variants, profile, lowered.references[0].samples[0], facts)
    return Built(folder, time.monotonic() - started)


def _compile(
    imported: Imported,
    kernels: Any,
    tasks: Sequence["NetworkTask"],
    profile: DeviceProfile,
    programs: Mapping[str, Program],
) -> bundle.Variant:
    from hetfeat.deploy.compile import compile_network

    with building():
        compiled = compile_network(kernels, profile, tasks, programs)
    return bundle.Variant(imported.batch, compiled.executable, compiled.parameters)


def _leave_out_unsound(
    picked: Mapping[str, Program], tasks: Sequence["NetworkTask"], profile: DeviceProfile
) -> dict[str, Program]:
    """The programs that nobody has built yet, less those that do not build."""
    from hetfeat.deploy.compile import builds

    sound = dict(picked)
    for task in tasks:
        program = picked.get(task.task.hash)
        if program is not None and not builds(task, program, profile):
            del sound[task.task.hash]
            log.warning(
                "the program chosen for %s %s does not build: TVM's default schedule instead",
                task.task.operator,
                task.task.shapes,
            )
    return sound


def _task_facts(
    task: "NetworkTask", fastest: Mapping[str, Measurement], picked: Mapping[str, Program]
) -> dict[str, Any]:
    best = fastest.get(task.task.hash)
    program = best.program if best else picked.get(task.task.hash)
    return {
        "task": task.task.hash,
        "operator": task.task.operator,
        "shapes": task.task.shapes,
        "dtype": task.task.dtype,
        "flops": task.task.flops,
        "weight": task.weight,
        "latency_s": best.latency_s if best else None,
        "trace": program.trace if program else None,
    }
