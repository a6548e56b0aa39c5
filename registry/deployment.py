"""Deploys with a model of the registry, and registers the bundle that comes out."""

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetfeat.deploy.bundle import read_manifest
from hetfeat.deploy.pipeline import deploy
from hetfeat.deploy.request import DeployRequest, Imported, SourceModel, discard, existing
from hetfeat.deploy.signing import signing_key
from hetfeat.devices.probe import find_profile
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError, RequestError
from hetfeat.models.table import load_model
from hetfeat.workloads.networks import load_network, network_slug
from registry import tracking
from registry.client import connect
from registry.flavor import log_bundle
from registry.manifest import MANIFEST, sha256_of
from registry.names import bundle_name, cost_model_name
from registry.pull import Pulled, pull
from registry.versions import (
    DATASET_TAG,
    MANIFEST_TAG,
    PARENT_TAG,
    Version,
    metric_tags,
    register,
)

log = logging.getLogger(__name__)

DEFAULT_STAGE = "production"
FROM_SCRATCH = "none"
"""Instead of a cost model's name."""


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
        trials: Programs to measure, or None for what the effort allows.
        batch: Batch sizes, the one to compare with peers first.
        refresh: Replace a bundle that is there.
        out: The bundle's folder.
        seed: Of weights, inputs and search.
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


def deploy_and_register(wanted: Wanted) -> dict[str, Any]:
    """Does the whole of `hetfeat deploy`.

    The model is resolved once; the version found is the one used and recorded. A bundle of the
    same request is found and not made again.

    Returns:
        What `--json` prints.

    Raises:
        RequestError: No such device, network, model or stage.
        WorkFailed: The compiled network is wrong.
    """
    signing_key()  # one that cannot be used shows before anything is tuned
    slug = network_slug(wanted.network)
    profile = find_profile(wanted.device)
    source = _pull_model(wanted, profile)
    request = DeployRequest(
        network=wanted.network,
        slug=slug,
        batches=wanted.batch,
        device=profile.name,
        model=source.version.uri if source else None,
        effort=wanted.effort,
        trials=wanted.trials,
        seed=wanted.seed,
    )
    name = bundle_name(slug, profile.name)
    found = None if wanted.refresh else existing(request, wanted.out)
    if found and (version := _registered(wanted.out, name)):
        log.info("'%s' is this bundle already; --refresh true makes it anew", wanted.out)
        known = {"run_id": version.run_id, "bundle_version": version.uri}
        return {**found, **known, "bundle": wanted.out, "reused": True}
    # A wrong name, or what TVM cannot import, shows before there is a run.
    networks = [_imported(request, batch) for batch in request.batches]
    if wanted.refresh:
        discard(wanted.out)
    tags = {"device": profile.name, "network": slug}
    tags |= {PARENT_TAG: source.version.uri} if source else {}
    with tracking.tracked_run(f"deploy {slug} {profile.name}", tags) as run:
        tracking.log_resolved(dataclasses.asdict(request))
        model = None
        if source:
            digest = source.version.tags.get(DATASET_TAG, "")
            model = SourceModel(load_model(source.folder), digest)
        report = found or deploy(request, networks, profile, model, wanted.out)
        report |= _log_bundle(wanted.out, report, profile, slug, source, run.info.run_id)
    return {**report, "bundle": wanted.out, "reused": found is not None}


def _pull_model(wanted: Wanted, profile: DeviceProfile) -> Pulled | None:
    """The staged cost model; None where there is none and none was asked for."""
    if wanted.model == FROM_SCRATCH:
        if wanted.stage:
            raise RequestError(
                f"--model {FROM_SCRATCH} with --stage {wanted.stage}",
                "one of the two",
                "leave --stage out to tune from scratch",
            )
        return None
    name = wanted.model or cost_model_name(profile.family)
    pinned = "/" in name or "@" in name
    try:
        stage = wanted.stage if pinned else wanted.stage or DEFAULT_STAGE
        return pull(name, stage, device=profile.name)
    except RequestError as error:
        if wanted.stage or wanted.model or isinstance(error, DataError):
            raise
        log.warning("no cost model (%s): tuning from scratch", error.given)
        return None


def _imported(request: DeployRequest, batch: int) -> Imported:
    from hetfeat.workloads.tvm import import_network

    network = load_network(request.network, batch, request.seed)
    return Imported(batch, network, import_network(network))


def _registered(out: Path, name: str) -> Version | None:
    """The version that a bundle is; None if an interrupt came before it was registered."""
    if not (out / MANIFEST).is_file():
        return None
    digest = sha256_of(out / MANIFEST)
    versions = connect().search_model_versions(f"name = '{name}'")
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
