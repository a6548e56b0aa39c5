"""Deploys with a model of the registry, and registers the bundle that comes out."""

import dataclasses
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hetfeat.cluster import builders_at, connected
from hetfeat.dataset.store import RecordStore
from hetfeat.deploy.bundle import read_manifest
from hetfeat.deploy.calibration import CalibrationData, read_calibration
from hetfeat.deploy.check_on_device import CheckOptions
from hetfeat.deploy.pipeline import compile_found, deploy
from hetfeat.deploy.precision import FLOAT32, INT8, check_precision, need_half, slug_in
from hetfeat.deploy.quantise import import_in_precision, import_kept
from hetfeat.deploy.report import DeployReport
from hetfeat.deploy.request import (
    DeployRequest,
    Imported,
    SourceModel,
    discard,
    existing,
    refuse_irreplaceable,
    refuse_unguided,
)
from hetfeat.deploy.signing import signing_key
from hetfeat.deploy.verify import need_output
from hetfeat.devices.fleet.control import need_tracker
from hetfeat.devices.host import need_cross_compiler
from hetfeat.devices.probe import find_profile
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError, RequestError
from hetfeat.measure.base import need_measurable
from hetfeat.models.registry import load_model
from hetfeat.parsing import printable
from hetfeat.search.strategies import EVOLUTION, check_strategies
from hetfeat.workloads.exported import function_digest
from hetfeat.workloads.library_errors import refusals
from hetfeat.workloads.networks import (
    check_classifier,
    is_function,
    load_network,
    network_slug,
)
from registry.files.manifest import MANIFEST, sha256_of
from registry.jobs.chosen_model import FROM_SCRATCH, ChosenModel, find_source
from registry.models.mlflow_client import condition, connect, translated
from registry.models.names import bundle_name
from registry.models.version import (
    CALIBRATION_TAG,
    MANIFEST_TAG,
    PARENT_TAG,
    PRECISION_TAG,
    Version,
)
from registry.models.versions import metric_tags, register, search_versions
from registry.tracking import command_run
from registry.tracking.bundle_flavor import log_bundle
from registry.tracking.deployed import log_deployment
from registry.tracking.live import Curve, live
from registry.tracking.trace import traced

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeployJob:
    """What `hetfeat deploy` was asked for.

    Attributes:
        network: Name of the network.
        out: Folder of the bundle.
        device: `local`, the default, this machine's name or a profile's file.
        model: Registered name, or a pinned version such as `models:/NAME/3`; `FROM_SCRATCH` for no
            model; None, the default, for the one of the device's family.
        stage: Stage of the model to use; None, the default, for production if there is one, else
            the packaged model.
        effort: `quick`, the default, `standard` or `full`.
        trials: Number of programs to measure; None, the default, for what the effort allows.
        batch: Batch sizes in rows, the one to compare with peers first; 1 by default.
        refresh: Whether to replace a bundle that is there, default False.
        untuned: Whether to time the network without tuning, too, however long that takes; default
            False.
        seed: Seed of weights, inputs and search, default 0.
        search: Strategy that proposes programs, default `evolution`.
        unrecorded: Whether to follow an alias to where no promotion put it, too; default False.
        output: Names of the outputs that are wanted; none, the default, for all.
        minutes: Most minutes of tuning; None, the default, for what the effort allows.
        precision: `float32`, the default, `float16`, `bfloat16` or `int8`.
        calibration: Calibration data of `int8`: an `.npz` file, a folder of images or
            `module:function`; default None.
        max_loss: Most that `int8` may lose; None, the default, for any.
        builders: Address of the Dask cluster that builds programs; default None for none.
    """

    network: str
    out: Path
    device: str = "local"
    model: str | None = None
    stage: str | None = None
    effort: str = "quick"
    trials: int | None = None
    batch: tuple[int, ...] = (1,)
    refresh: bool = False
    untuned: bool = False
    seed: int = 0
    search: str = EVOLUTION
    unrecorded: bool = False
    output: tuple[str, ...] = ()
    minutes: float | None = None
    precision: str = FLOAT32
    calibration: str | None = None
    max_loss: float | None = None
    builders: str | None = None


@dataclass(frozen=True)
class Deployment:
    """A bundle that is registered.

    Attributes:
        report: What deploying it came to.
        run_id: Id of the MLflow run that logged it, None if the registry does not know it.
        bundle_version: URI of its registered version.
        bundle: Folder of the bundle.
        reused: Whether it was there before.
    """

    report: DeployReport
    run_id: str | None
    bundle_version: str
    bundle: Path
    reused: bool

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return self.report.as_json() | {
            "run_id": self.run_id,
            "bundle_version": self.bundle_version,
            "bundle": str(self.bundle),
            "reused": self.reused,
        }


def deploy_and_register(job: DeployJob) -> Deployment:
    """Does the whole of `hetfeat deploy`.

    The model is resolved once; the version found is the one used and recorded. A bundle of the
    same request is found and not made again.

    Raises:
        RequestError: No such device, network, model or stage, or a device that cannot be measured.
        WorkFailed: The compiled network is wrong, or no tracker answers for the device.
    """
    signing_key()  # one that cannot be used shows before anything is tuned
    check_precision(job.precision, job.calibration, len(job.batch), job.max_loss)
    check_strategies([job.search])
    slug = slug_in(network_slug(job.network), job.precision)
    if not job.out.exists():  # what lies there may be this network's, and asking loads torch
        check_classifier(job.network)
    profile = find_profile(job.device)
    need_half(job.precision, profile.name, profile.target)
    need_measurable(profile)
    if job.refresh or not job.out.exists():  # else it may be this bundle already
        need_cross_compiler(profile.name, profile.target)
        need_tracker(profile)
    source = find_source(_model_to_ask(job), job.stage, profile, job.unrecorded)
    calibration = read_calibration(job.calibration) if job.calibration else None
    request = DeployRequest(
        network=job.network,
        slug=slug,
        batches=job.batch,
        device=profile.name,
        model=source.name if source else None,
        effort=job.effort,
        trials=job.trials,
        seed=job.seed,
        search=job.search,
        digest=function_digest(job.network, job.batch, job.seed),
        outputs=job.output,
        minutes=job.minutes,
        precision=job.precision,
        calibration=calibration.digest if calibration else None,
        max_loss=job.max_loss,
    )
    report = None if job.refresh else existing(request, job.out)
    if report and (version := _registered(job.out, bundle_name(slug, profile.name))):
        log.info("'%s' is this bundle already; --refresh true makes it anew", job.out)
        return Deployment(report, version.run_id, version.uri, job.out, reused=True)
    with connected(builders_at(job.builders)) as cluster:
        make = partial(deploy, check=CheckOptions(untuned=job.untuned), cluster=cluster)
        return _deploy_in_run(
            request, profile, source, job.out, report, job.refresh, make, calibration
        )


def _model_to_ask(job: DeployJob) -> str | None:
    """The cost model as it was asked for; none where the search asks none.

    Raises:
        RequestError: One was asked for that nobody would ask.
    """
    if job.search == EVOLUTION:
        return job.model
    if job.stage or job.model not in (None, FROM_SCRATCH):
        raise RequestError(
            f"--search {job.search} with a cost model",
            f"{EVOLUTION}, the only search that asks one",
            "leave --model and --stage out, or --search",
        )
    return FROM_SCRATCH


def compile_and_register(
    journal: Path, out: Path, network: str | None = None, outputs: tuple[str, ...] = ()
) -> Deployment:
    """Does the whole of `hetfeat compile`: a bundle of what a deployment has found so far.

    Args:
        journal: Journal of the deployment, which may have another owner.
        out: Folder of the bundle.
        network: Name of the journal's network, default None; needed for a `module:function`, which
            is run.
        outputs: Names of the outputs, as in `DeployRequest`; none, the default, for those that the
            deployment was asked for.

    Raises:
        RequestError: Something lies at `out`, the device, network or model is gone, or the
            journal is of another network.
        DataError: `journal` is none of a deployment.
        WorkFailed: The compiled network is wrong.
    """
    signing_key()
    request = DeployRequest.of_journal(journal)
    if out.exists():
        raise RequestError(f"'{out}', which exists", "a new folder", "choose another --out")
    if network != request.network and (network or is_function(request.network)):
        name = printable(request.network)
        raise RequestError(
            f"'{journal}' of network '{name}'" + (f", not '{network}'" if network else ""),
            "its name on the command line: the code that a journal names is not run unasked",
            f"if you trust it, pass --network {name}",
        )
    digest = function_digest(request.network, request.batches, request.seed)
    slug = slug_in(network_slug(request.network), request.precision)
    if (slug, digest) != (request.slug, request.digest):
        raise RequestError(
            f"network '{request.network}', which has changed since '{journal}' was begun",
            f"the one of then, {request.slug}",
            "restore it, or deploy it anew",
        )
    profile = RecordStore.open(journal).devices().get(request.device)
    if profile is None:
        raise DataError(
            f"'{journal}' without a profile of {request.device}",
            "the journal as `hetfeat deploy` wrote it",
            "deploy again with the same --out",
        )
    source = find_source(request.model or FROM_SCRATCH, None, profile)
    request = dataclasses.replace(request, outputs=outputs or request.outputs)
    networks = _import_networks(request, profile, journal=journal)
    with _run_of(request, source) as run:
        report = compile_found(request, networks, profile, run.model, out, journal)
        log_deployment(report, read_manifest(out), profile, run.curve)
        version = _log_bundle(out, report, request, source, run.id)
    return Deployment(report, run.id, version.uri, out, reused=False)


def _deploy_in_run(
    request: DeployRequest,
    profile: DeviceProfile,
    source: ChosenModel | None,
    out: Path,
    kept: DeployReport | None,
    refresh: bool,
    make: Callable[..., DeployReport],
    calibration: CalibrationData | None,
) -> Deployment:
    """Deploys, unless there is a bundle with a report that was kept, and registers the bundle."""
    refuse_unguided(request, source is not None)
    networks = _import_networks(request, profile, calibration)
    if refresh:
        refuse_irreplaceable(out)
    with _run_of(request, source) as run:
        if refresh:
            discard(out)
        report = kept or make(request, networks, profile, run.model, out)
        log_deployment(report, read_manifest(out), profile, run.curve)
        version = _log_bundle(out, report, request, source, run.id)
    return Deployment(report, run.id, version.uri, out, reused=kept is not None)


def _import_networks(
    request: DeployRequest,
    profile: DeviceProfile,
    calibration: CalibrationData | None = None,
    journal: Path | None = None,
) -> list[Imported]:
    """The networks; a wrong name, or what TVM cannot import, shows before there is a run.

    One that was quantised for a deployment is taken from its journal.
    """
    if journal is not None and request.precision == INT8:
        networks = [import_kept(journal, request)]
    else:
        loaded = [
            (batch, load_network(request.network, batch, request.seed, request.outputs))
            for batch in request.batches
        ]
        networks = [import_in_precision(*of, calibration, request.max_loss) for of in loaded]
    with refusals(request.network):
        need_output(networks[0].network, request.seed)
    need_cross_compiler(profile.name, profile.target)
    return networks


@dataclass(frozen=True)
class _DeploymentRun:
    """The MLflow run of a deployment, the model to tune with, and figures that come meanwhile."""

    id: str
    model: SourceModel | None
    curve: Curve


@contextmanager
def _run_of(request: DeployRequest, source: ChosenModel | None) -> Iterator[_DeploymentRun]:
    tags = {"device": request.device, "network": request.slug}
    tags |= {PARENT_TAG: source.parent_uri} if source and source.parent_uri else {}
    name = command_run.run_name(
        *("deploy", request.slug, request.device),
        batch=request.batches,
        search=request.search,
        effort=request.effort,
        trials=request.trials,
        seed=request.seed,
    )
    with (
        command_run.tracked_run(name, tags) as run,
        live(run.info.run_id) as curve,
        traced("deploy"),
    ):
        command_run.log_resolved(dataclasses.asdict(request))
        if source and source.version:
            command_run.log_source_model(source.version)
        model = SourceModel(load_model(source.folder), source.dataset_digest) if source else None
        yield _DeploymentRun(run.info.run_id, model, curve)


def _registered(out: Path, name: str) -> Version | None:
    """The version that a bundle is; None if an interrupt came before it was registered."""
    if not (out / MANIFEST).is_file():
        return None
    digest = sha256_of(out / MANIFEST)
    with translated(f"look up {name}"):
        versions = search_versions(connect(), condition("name", name))
        return next((Version.of(v) for v in versions if v.tags.get(MANIFEST_TAG) == digest), None)


def _log_bundle(
    out: Path, report: DeployReport, request: DeployRequest, source: ChosenModel | None, run_id: str
) -> Version:
    """Logs a bundle and registers it."""
    gated = {
        "latency_ms": report.latency_ms,
        "max_abs_error": report.max_abs_error,
        "tolerance": report.tolerance,
    }
    if report.accuracy:
        gated |= report.accuracy.figures()
    tags = {"device": request.device, "network": request.slug}
    if request.precision != FLOAT32:
        tags |= {PRECISION_TAG: request.precision}
    if request.calibration:
        tags |= {CALIBRATION_TAG: request.calibration}
    info, manifest_sha256 = log_bundle(out, read_manifest(out), tags)
    return register(
        bundle_name(request.slug, request.device),
        info,
        folder_manifest_sha256=manifest_sha256,
        tags=tags | metric_tags(gated),
        parent_uri=source.parent_uri if source else None,
        run_id=run_id,
    )
