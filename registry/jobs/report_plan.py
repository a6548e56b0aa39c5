"""What a report still lacks, each step by the function of its command."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetfeat.dataset.splits import TENSET
from hetfeat.report.deployments import (
    SPLIT_OF_SOURCES,
    TABLE7_NETWORK,
    TABLE8_MODEL,
    Source,
    deployments,
)
from hetfeat.report.run import Run
from hetfeat.report.scope import BATCHES, MODELS, NETWORKS, STRATEGIES, Device, Scope
from hetfeat.report.searches import searches
from registry.jobs.chosen_model import FROM_SCRATCH
from registry.models.mlflow_client import condition, connect, translated
from registry.models.version import Version
from registry.models.versions import search_versions

if TYPE_CHECKING:
    from registry.jobs.deploy import DeployJob

DEPLOY_SEED = 0


@dataclass(frozen=True)
class ReportStep:
    """Something to run.

    Attributes:
        what: Description for people.
        run: Callable that does it, as the command does.
    """

    what: str
    run: Callable[[], Any]


@dataclass(frozen=True)
class ReportPlan:
    """What steps are made of.

    Attributes:
        scope: Scope that says which runs count.
        records: Folder of the record store.
        device: Device of this machine, as a report names it.
        evaluations: Number of states that each search measures.
        bundles: Folder of the bundles, with the journals that deployments go on from.
    """

    scope: Scope
    records: Path
    device: Device
    evaluations: int
    bundles: Path


def missing_trainings(plan: ReportPlan, runs: Sequence[Run]) -> Iterator[ReportStep]:
    """Each model on each split, on all and on pruned records, once a seed."""
    from registry.jobs.train import TrainingRequest, train_and_register, train_as_tenset

    scope = plan.scope
    for hardware, family in scope.families.items():
        for split in scope.size.splits:
            for holdout in scope.tested_on(hardware, split):
                train = train_as_tenset if split == TENSET else train_and_register
                for model in scope.size.tuners if split == "by_task" else MODELS:
                    for pruned in (False, True):
                        done = scope.trainings(
                            runs,
                            hardware,
                            model=model,
                            split=split,
                            pruned=pruned,
                            holdout=holdout,
                        )
                        for seed in _left(done, scope.size.seeds):
                            request = TrainingRequest(
                                *(plan.records, family, model, split),
                                *((holdout,) if holdout else (), scope.effort, seed, pruned),
                            )
                            held = f" without {holdout}" if holdout else ""
                            data = "pruned" if pruned else "all"
                            yield ReportStep(
                                f"train {model} {split}{held} on {data} {hardware} records, "
                                f"seed {seed}",
                                partial(train, request),
                            )


def missing_searches(plan: ReportPlan, runs: Sequence[Run]) -> Iterator[ReportStep]:
    """The four searches on the live GEMM, once a seed; those of a seed share what they measure."""
    from registry.jobs.search import SearchRequest, search_and_log

    scope = plan.scope
    left: dict[int, list[str]] = {}
    for strategy in STRATEGIES:
        done = searches(runs, scope, plan.device.name, strategy, plan.evaluations)
        for seed in _left(done, scope.size.seeds):
            left.setdefault(seed, []).append(strategy)
    for seed, strategies in sorted(left.items()):
        request = SearchRequest(
            space=None,
            gemm=scope.size.gemm,
            device="local",
            strategy=tuple(strategies),
            budget=str(plan.evaluations),
            repeats=1,
            prior=None,
            seed=seed,
        )
        yield ReportStep(
            f"search gemm {scope.size.gemm} by {', '.join(strategies)}, seed {seed}",
            partial(search_and_log, request, beside_libraries=False),
        )


def missing_deployments(plan: ReportPlan, runs: Sequence[Run]) -> Iterator[ReportStep]:
    """Networks tuned from scratch and with cost models of these records."""
    size = plan.scope.size
    sources = [Source(model, pruned) for model in MODELS for pruned in (False, True)]
    if size.table7:
        for source in (None, *sources):
            yield from _deployment(plan, runs, TABLE7_NETWORK, BATCHES, size.table7, source)
    if size.without and size.with_model:
        for network in NETWORKS:
            yield from _deployment(plan, runs, network, BATCHES[:1], size.without, None)
            source = Source(TABLE8_MODEL, False)
            yield from _deployment(plan, runs, network, BATCHES[:1], size.with_model, source)


def _deployment(
    plan: ReportPlan,
    runs: Sequence[Run],
    network: str,
    batches: tuple[int, ...],
    effort: str,
    source: Source | None,
) -> Iterator[ReportStep]:
    from registry.jobs.deploy import DeployJob

    done = deployments(
        runs,
        plan.scope,
        device=plan.device.name,
        network=network,
        batches=batches,
        effort=effort,
        source=source,
    )
    if done:
        return
    model, told, number = FROM_SCRATCH, "from scratch", ""
    if source is not None:
        trained = _source_run(plan, runs, source)
        version = _version_of(trained) if trained else None
        if version is None:
            return  # its training failed, which the report says
        model, told = version, f"with {source.model}{', pruned' if source.pruned else ''}"
        number = f"-v{version.rpartition('/')[2]}"  # a bundle of another version is another request
    name = f"{network}-{'.'.join(map(str, batches))}-{effort}-{told}{number}"
    name = name.replace(", ", "-").replace(" ", "-")
    job = DeployJob(
        network, plan.bundles / name, model=model, effort=effort, batch=batches, seed=DEPLOY_SEED
    )
    yield ReportStep(
        f"deploy {network}, batch {','.join(map(str, batches))}, {effort}, {told}",
        partial(_deploy, job),
    )


def _deploy(job: "DeployJob") -> None:
    """Deploys; a tuning that the user stops ends the report, too."""
    from registry.jobs.deploy import deploy_and_register

    if deploy_and_register(job).report.stopped:
        raise KeyboardInterrupt


def _source_run(plan: ReportPlan, runs: Sequence[Run], source: Source) -> Run | None:
    """The training, of the first seed, of the cost model to tune with."""
    trainings = plan.scope.trainings(
        runs,
        plan.device.hardware,
        model=source.model,
        split=SPLIT_OF_SOURCES,
        pruned=source.pruned,
    )
    return trainings[0] if trainings else None


def _version_of(run: Run) -> str | None:
    """The version that a training registered, pinned."""
    with translated(f"find the version of run {run.id}"):
        versions = search_versions(connect(), condition("run_id", run.id))
        return next((Version.of(version).uri for version in versions), None)


def _left(done: Sequence[Run], seeds: int) -> list[int]:
    """Seeds without a run."""
    there = {run.seed for run in done}
    return [seed for seed in range(seeds) if str(seed) not in there]
