"""The whole of a deployment: tune, compile, verify, compare, and leave a bundle."""

import dataclasses
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetfeat.dataset.store import RecordStore
from hetfeat.deploy import bundle
from hetfeat.deploy.bench import Latency, compare
from hetfeat.deploy.verify import verify
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import RequestError
from hetfeat.measure.local import LocalMeasurer
from hetfeat.models.base import CostModel
from hetfeat.tune.loop import BUDGETS, Budget, TaskState, Tuned, tune

if TYPE_CHECKING:
    from hetfeat.workloads.networks import Network

log = logging.getLogger(__name__)

PEERS = ("torch", "onnxruntime")
ROUNDS = {"quick": 10, "standard": 20, "full": 40}
"""Turns of each engine in the comparison."""
UNTUNED_ROUNDS = 2


@dataclass(frozen=True)
class DeployRequest:
    """What was asked for; equal requests give the same bundle.

    Attributes:
        network: Name for `workloads.networks.load_network`.
        batch: Batch size.
        device: Name of the device profile.
        model: URI of the cost model's version, pinned, or None to tune without one.
        effort: `quick`, `standard` or `full`.
        trials: Measured programs in all, or None for what the effort allows.
        seed: Seed of weights, inputs and search.
    """

    network: str
    batch: int
    device: str
    model: str | None
    effort: str
    trials: int | None
    seed: int


@dataclass(frozen=True)
class SourceModel:
    """The cost model to tune with, and what is known of it.

    Attributes:
        model: The model.
        dataset_digest: Digest of its training records.
    """

    model: CostModel
    dataset_digest: str


def existing(request: DeployRequest, out: Path) -> dict[str, Any] | None:
    """The report of the bundle at `out` if it is what is asked for, or None if there is none.

    A bundle whose tuning was interrupted counts as none: deploying goes on from its journal.

    Raises:
        DataError: Something else lies there.
        RequestError: A bundle of another request lies there.
    """
    if not out.exists():
        return None
    manifest = bundle.read_manifest(out)
    if manifest.get("request") != dataclasses.asdict(request):
        raise RequestError(
            f"'{out}', a bundle of {manifest['network']} from another request",
            "the same network, device, model version and effort",
            "choose another --out, or pass --refresh true to replace it",
        )
    report: dict[str, Any] = manifest["report"]
    return None if report["interrupted"] else report


def discard(out: Path) -> None:
    """Removes a bundle's journal, so that deploying to `out` measures anew.

    The bundle itself stays until the new one takes its place.

    Raises:
        DataError: Something that is no bundle, or no journal, lies there.
    """
    if out.exists():
        bundle.read_manifest(out)
    journal = _journal_path(out)
    if journal.exists():
        RecordStore.open(journal)
        shutil.rmtree(journal)


def deploy(
    request: DeployRequest,
    network: "Network",
    imported: Any,
    profile: DeviceProfile,
    source: SourceModel | None,
    out: Path,
) -> dict[str, Any]:
    """Tunes and compiles a network for this machine and writes the bundle.

    Measurements are kept in `OUT.journal`, a record store: an interrupted deployment goes on
    from there. The bundle appears at `out` complete, or not at all, in the place of an older one.

    Args:
        request: What is asked for.
        network: The network in torch.
        imported: The same from `workloads.tvm.import_network`.
        profile: This machine.
        source: Cost model to tune with.
        out: Folder of the bundle.

    Returns:
        The report, as the manifest keeps it.

    Raises:
        WorkFailed: The compiled network is wrong or does not run.
    """
    from hetfeat.deploy.tvm import compile_network
    from hetfeat.workloads.tvm import as_target, extract_tasks, lower, save_workload

    started = time.monotonic()
    target = as_target(profile.target)
    lowered = lower(imported, target)
    tasks = extract_tasks(lowered, target)
    weights = {task.task.hash: task.weight for task in tasks}
    modules = {task.task.hash: save_workload(task.module) for task in tasks}
    log.info("%s: %d tasks", network.name, len(tasks))

    journal = RecordStore.create(_journal_path(out))
    journal.add_device(profile)
    journal.add_network(network.name, weights, modules)
    with LocalMeasurer(profile) as measurer:
        for task in tasks:
            measurer.add_task(task.task, modules[task.task.hash])
        tuned = tune(
            [(task.task, task.weight) for task in tasks],
            measurer,
            source.model if source else None,
            journal,
            _budget(request, len(tasks)),
            request.seed,
            _progress(weights),
        )
    journal.compact()
    if tuned.interrupted:
        log.info("interrupted: compiling with the best found so far")

    build_started = time.monotonic()
    compiled = compile_network(lowered, profile, tasks, tuned.best)
    inputs = [value.numpy() for value in network.inputs]
    leaked = _leaked(source, profile, weights)
    facts = {
        "network": network.name,
        "batch": request.batch,
        "request": dataclasses.asdict(request),
        "cost_model": request.model,
        "dataset_digest": source.dataset_digest if source else None,
        "tasks": [
            {
                "task": task.task.hash,
                "operator": task.task.operator,
                "shapes": task.task.shapes,
                "weight": task.weight,
                "latency_s": tuned.best[task.task.hash].latency_s
                if task.task.hash in tuned.best
                else None,
                "trace": tuned.best[task.task.hash].program.trace
                if task.task.hash in tuned.best
                else None,
            }
            for task in tasks
        ],
    }
    with tempfile.TemporaryDirectory(dir=_parent(out), prefix=f".{out.name}.") as work:
        draft, untuned = Path(work) / "tuned", Path(work) / "untuned"
        bundle.write_bundle(draft, compiled.executable, compiled.parameters, profile, inputs, facts)
        plain = compile_network(lowered, profile, tasks, {})
        bundle.write_bundle(untuned, plain.executable, plain.parameters, profile, inputs, facts)
        build_s = time.monotonic() - build_started
        verified = verify(bundle.load_bundle(draft), network, request.seed)
        log.info("verified: largest error %.3g", verified.max_abs_error)
        measured = _bench(request, profile, draft, untuned)
        tuned_latency = measured["bundle"]
        assert tuned_latency is not None
        report = {
            "network": network.name,
            "device": profile.name,
            "latency_ms": tuned_latency.median_ms,
            "latency_range_ms": [tuned_latency.low_ms, tuned_latency.high_ms],
            "peers_ms": {name: _median(measured[name]) for name in PEERS},
            "untuned_ms": _median(measured["untuned"]),
            "tuning_s": tuned.seconds,
            "build_s": build_s,
            "total_s": time.monotonic() - started,
            "trials": tuned.trials + tuned.resumed,
            "failed": tuned.failed,
            "resumed": tuned.resumed,
            "interrupted": tuned.interrupted,
            "max_abs_error": verified.max_abs_error,
            "tolerance": verified.tolerance,
            "model_version": request.model,
            "leaked_records": leaked,
        }
        bundle.add_facts(draft, {"report": report})
        if out.exists():
            shutil.rmtree(out)
        draft.rename(out)
    return report


def _budget(request: DeployRequest, tasks: int) -> Budget:
    budget = BUDGETS[request.effort]
    if request.trials is None:
        return dataclasses.replace(budget, trials=budget.trials_per_task * tasks)
    return dataclasses.replace(budget, trials=request.trials)


def _progress(weights: Mapping[str, int]) -> Callable[[Tuned, TaskState], None]:
    """Logs a line now and then: trials, rate, and what the kernels add up to."""
    best: dict[str, float] = {}
    last = [time.monotonic()]

    def on_round(tuned: Tuned, state: TaskState) -> None:
        if state.best and state.best.latency_s is not None:
            best[state.task.hash] = state.best.latency_s
        if time.monotonic() - last[0] < 10:
            return
        last[0] = time.monotonic()
        total_ms = 1e3 * sum(weights[key] * value for key, value in best.items())
        log.info(
            "%d programs measured, %.1f a second; %d of %d tasks, kernels %.2f ms",
            tuned.trials,
            tuned.trials / max(tuned.seconds, 1e-9),
            len(best),
            len(weights),
            total_ms,
        )

    return on_round


def _bench(
    request: DeployRequest, profile: DeviceProfile, draft: Path, untuned: Path
) -> dict[str, Latency | None]:
    network = {"network": request.network, "batch": request.batch, "seed": request.seed}
    engines = {"bundle": {"engine": "bundle", "bundle": str(draft)}}
    peers = {name: {"engine": name, **network} for name in PEERS}
    log.info("comparing with %s, %d threads each", ", ".join(PEERS), profile.threads)
    measured = compare({**engines, **peers}, profile.threads, ROUNDS[request.effort])
    plain = {"untuned": {"engine": "bundle", "bundle": str(untuned)}}
    return measured | compare(plain, profile.threads, UNTUNED_ROUNDS)


def _leaked(source: SourceModel | None, profile: DeviceProfile, weights: Mapping[str, int]) -> int:
    """Records of this device's runs of this network's tasks that the cost model was trained on."""
    seen = source.model.seen.get(profile.name, {}) if source else {}
    return sum(seen.get(task, 0) for task in weights)


def _median(latency: Latency | None) -> float | None:
    return latency.median_ms if latency else None


def _journal_path(out: Path) -> Path:
    return out.with_name(out.name + ".journal")


def _parent(out: Path) -> Path:
    out.parent.mkdir(parents=True, exist_ok=True)
    return out.parent
