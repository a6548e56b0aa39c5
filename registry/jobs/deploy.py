"""Deploys with a model of the registry, and registers the bundle that comes out."""

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetfeat.dataset.store import RecordStore
from hetfeat.deploy.bundle import read_manifest
from hetfeat.deploy.pipeline import deploy
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
from hetfeat.deploy.verify import reference_of
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
from hetfeat.workloads.networks import is_function, load_network, network_slug
from registry.files.manifest import MANIFEST, sha256_of
from registry.files.pull import Pulled, pull
from registry.models.mlflow_client import condition, connect, translated
from registry.models.names import bundle_name, cost_model_name
from registry.models.version import DATASET_TAG, MANIFEST_TAG, PARENT_TAG, Version
from registry.models.versions import metric_tags, register, search_versions
from registry.tracking import command_run
from registry.tracking.bundle_flavor import log_bundle

log = logging.getLogger(__name__)

DEFAULT_STAGE = "production"
FROM_SCRATCH = "none"
"""Word given instead of a cost model's name to tune without one."""
INTERRUPTED_TAG = "interrupted"
"""Tag of the run of a deployment that had not spent its budget: no report counts it."""


@dataclass(frozen=True)
class Wanted:
    """What `hetfeat deploy` was asked for.

    Attributes:
        device: `local`, this machine's name or a profile's file.
        network: Name of the network.
        model: Registered name, or a pinned version such as `models:/NAME/3`; `FROM_SCRATCH` for no
            model; None for the one of the device's family.
        stage: Stage of the model to use; None for production if there is one, else no model.
        effort: `quick`, `standard` or `full`.
        trials: Number of programs to measure, or None for what the effort allows.
        batch: Batch sizes in rows, the one to compare with peers first.
        refresh: Whether to replace a bundle that is there.
        out: Folder of the bundle.
        seed: Seed of weights, inputs and search.
        search: Strategy that proposes programs, default `evolution`.
        unrecorded: Whether to follow an alias to where no promotion put it, too; default False.
        output: Names of the outputs that are wanted; none, the default, for all.
    """

    device: str
    network: str
    model: str | None
    stage: str | None
    effort: str
    trials: int | None
    batch: tuple[int, ...]
    refresh: bool
    out: Path
    seed: int
    search: str = EVOLUTION
    unrecorded: bool = False
    output: tuple[str, ...] = ()


def deploy_and_register(wanted: Wanted) -> dict[str, Any]:
    """Does the whole of `hetfeat deploy`.

    The model is resolved once; the version found is the one used and recorded. A bundle of the
    same request is found and not made again.

    Returns:
        The report, as `--json` prints it.

    Raises:
        RequestError: No such device, network, model or stage, or a device that cannot be measured.
        WorkFailed: The compiled network is wrong.
    """
    signing_key()  # one that cannot be used shows before anything is tuned
    check_strategies([wanted.search])
    slug = network_slug(wanted.network)
    profile = find_profile(wanted.device)
    need_measurable(profile)
    source = _pull_model(_model_to_ask(wanted), wanted.stage, profile, wanted.unrecorded)
    request = DeployRequest(
        network=wanted.network,
        slug=slug,
        batches=wanted.batch,
        device=profile.name,
        model=source.version.uri if source else None,
        effort=wanted.effort,
        trials=wanted.trials,
        seed=wanted.seed,
        search=wanted.search,
        digest=function_digest(wanted.network, wanted.batch, wanted.seed),
        outputs=wanted.output,
    )
    found = None if wanted.refresh else existing(request, wanted.out)
    if found and (version := _registered(wanted.out, bundle_name(slug, profile.name))):
        log.info("'%s' is this bundle already; --refresh true makes it anew", wanted.out)
        known = {"run_id": version.run_id, "bundle_version": version.uri}
        return {**found, **known, "bundle": wanted.out, "reused": True}
    return _deploy_in_run(request, profile, source, wanted.out, found, wanted.refresh)


def _model_to_ask(wanted: Wanted) -> str | None:
    """The cost model as it was asked for; none where the search asks none.

    Raises:
        RequestError: One was asked for that nobody would ask.
    """
    if wanted.search == EVOLUTION:
        return wanted.model
    if wanted.stage or wanted.model not in (None, FROM_SCRATCH):
        raise RequestError(
            f"--search {wanted.search} with a cost model",
            f"{EVOLUTION}, the only search that asks one",
            "leave --model and --stage out, or --search",
        )
    return FROM_SCRATCH


def compile_and_register(
    journal: Path, out: Path, network: str | None = None, outputs: tuple[str, ...] = ()
) -> dict[str, Any]:
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
    now = function_digest(request.network, request.batches, request.seed)
    if (network_slug(request.network), now) != (request.slug, request.digest):
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
    source = _pull_model(request.model or FROM_SCRATCH, None, profile)
    request = dataclasses.replace(request, outputs=outputs or request.outputs)
    return _deploy_in_run(request, profile, source, out, journal=journal)


def _deploy_in_run(
    request: DeployRequest,
    profile: DeviceProfile,
    source: Pulled | None,
    out: Path,
    found: dict[str, Any] | None = None,
    refresh: bool = False,
    journal: Path | None = None,
) -> dict[str, Any]:
    """Deploys, unless the bundle was `found`, and registers it; what `--json` prints."""
    # A wrong name, or what TVM cannot import, shows before there is a run.
    refuse_unguided(request, source is not None or journal is not None)
    networks = [_imported(request, batch) for batch in request.batches]
    with refusals(request.network):
        reference_of(networks[0].network, request.seed)
    need_cross_compiler(profile.name, profile.target)
    if refresh:
        refuse_irreplaceable(out)
    slug = request.slug
    tags = {"device": profile.name, "network": slug}
    tags |= {PARENT_TAG: source.version.uri} if source else {}
    with command_run.tracked_run(f"deploy {slug} {profile.name}", tags) as run:
        command_run.log_resolved(dataclasses.asdict(request))
        model = None
        if source:
            digest = source.version.tags.get(DATASET_TAG, "")
            model = SourceModel(load_model(source.folder), digest)
        if refresh:
            discard(out)
        report = found or deploy(request, networks, profile, model, out, journal)
        report |= _log_bundle(out, report, profile, slug, source, run.info.run_id)
    return {**report, "bundle": out, "reused": found is not None}


def _pull_model(
    model: str | None, wanted_stage: str | None, profile: DeviceProfile, unrecorded: bool = False
) -> Pulled | None:
    """The staged cost model; None where there is none and none was asked for."""
    if model == FROM_SCRATCH:
        if wanted_stage:
            raise RequestError(
                f"--model {FROM_SCRATCH} with --stage {wanted_stage}",
                "one of the two",
                "leave --stage out to tune from scratch",
            )
        return None
    name = model or cost_model_name(profile.family)
    pinned = "/" in name or "@" in name
    try:
        stage = wanted_stage if pinned else wanted_stage or DEFAULT_STAGE
        return pull(name, stage, device=profile.name, unrecorded=unrecorded)
    except RequestError as error:
        if wanted_stage or model or isinstance(error, DataError):
            raise
        log.warning("no cost model (%s): tuning from scratch", error.given)
        return None


def _imported(request: DeployRequest, batch: int) -> Imported:
    from hetfeat.workloads.relax import import_network

    network = load_network(request.network, batch, request.seed, request.outputs)
    return Imported(batch, network, import_network(network))


def _registered(out: Path, name: str) -> Version | None:
    """The version that a bundle is; None if an interrupt came before it was registered."""
    if not (out / MANIFEST).is_file():
        return None
    digest = sha256_of(out / MANIFEST)
    with translated(f"look up {name}"):
        versions = search_versions(connect(), condition("name", name))
        return next((Version.of(v) for v in versions if v.tags.get(MANIFEST_TAG) == digest), None)


def _log_bundle(
    out: Path,
    report: dict[str, Any],
    profile: DeviceProfile,
    slug: str,
    source: Pulled | None,
    run_id: str,
) -> dict[str, Any]:
    """Logs a bundle and its figures and registers it; returns what the report gains by it."""
    import mlflow

    figures = {key: report[key] for key in _FIGURES} | {
        f"{peer}_ms": value for peer, value in report["peers_ms"].items()
    }
    figures |= {f"batch_{batch}_ms": value for batch, value in report["batches_ms"].items()}
    mlflow.log_metrics({key: float(v) for key, v in figures.items() if v is not None})
    if report["interrupted"]:
        mlflow.set_tag(INTERRUPTED_TAG, "true")
    tags = {"device": profile.name, "network": slug}
    info, manifest_sha256 = log_bundle(out, read_manifest(out), tags)
    version = register(
        bundle_name(slug, profile.name),
        info,
        folder_manifest_sha256=manifest_sha256,
        tags=tags | metric_tags({key: report[key] for key in _GATED}),
        parent_uri=source.version.uri if source else None,
        run_id=run_id,
    )
    return {"run_id": run_id, "bundle_version": version.uri}


_FIGURES = (
    *("latency_ms", "untuned_ms", "tuning_s", "build_s", "trials"),
    *("max_abs_error", "tolerance", "leaked_records"),
)
_GATED = ("latency_ms", "max_abs_error", "tolerance")
