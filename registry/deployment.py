"""Deploys with a model of the registry, and registers the bundle that comes out."""

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetfeat.deploy.pipeline import (
    DeployRequest,
    SourceModel,
    deploy,
    discard,
    existing,
)
from hetfeat.devices.probe import find_profile
from hetfeat.devices.profile import DeviceProfile
from hetfeat.models.table import load_model
from hetfeat.workloads.networks import load_network, network_slug
from registry import tracking
from registry.client import connect
from registry.manifest import MANIFEST, sha256_of, write_manifest
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

BUNDLE = "bundle"
"""Folder of the bundle among the run's artifacts."""


@dataclass(frozen=True)
class Wanted:
    """What `hetfeat deploy` was asked for.

    Attributes:
        device: `local`, this machine's name or a profile's file.
        network: Name of the network.
        model: Registered name, or None for the one of the device's family.
        stage: Stage of the model to use.
        effort: `quick`, `standard` or `full`.
        trials: Programs to measure, or None for what the effort allows.
        batch: Batch size.
        refresh: Replace a bundle that is there.
        out: The bundle's folder.
        seed: Of weights, inputs and search.
    """

    device: str
    network: str
    model: str | None
    stage: str
    effort: str
    trials: int | None
    batch: int
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
    from hetfeat.workloads.tvm import import_network

    slug = network_slug(wanted.network)
    profile = find_profile(wanted.device)
    source = pull(
        wanted.model or cost_model_name(profile.family), wanted.stage, device=profile.name
    )
    request = DeployRequest(
        network=wanted.network,
        batch=wanted.batch,
        device=profile.name,
        model=source.version.uri,
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
    network = load_network(request.network, request.batch, request.seed)
    imported = import_network(network)
    if wanted.refresh:
        discard(wanted.out)
    tags = {"device": profile.name, "network": slug, PARENT_TAG: source.version.uri}
    with tracking.tracked_run(f"deploy {slug} {profile.name}", tags) as run:
        tracking.log_resolved(dataclasses.asdict(request))
        model = SourceModel(load_model(source.folder), source.version.tags.get(DATASET_TAG, ""))
        report = found or deploy(request, network, imported, profile, model, wanted.out)
        report |= _log_bundle(wanted.out, report, profile, slug, source, run.info.run_id)
    return {**report, "bundle": wanted.out, "reused": found is not None}


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
    source: Pulled,
    run_id: str,
) -> dict[str, Any]:
    """Logs a bundle and its figures and registers it; returns what the report gains by it."""
    import mlflow

    figures = {key: report[key] for key in _FIGURES} | {
        f"{peer}_ms": value for peer, value in report["peers_ms"].items()
    }
    mlflow.log_metrics({key: float(v) for key, v in figures.items() if v is not None})
    manifest_sha256 = write_manifest(out)
    mlflow.log_artifacts(str(out), BUNDLE)
    version = register(
        bundle_name(slug, profile.name),
        f"runs:/{run_id}/{BUNDLE}",
        folder_manifest_sha256=manifest_sha256,
        tags={
            "device": profile.name,
            "network": slug,
            **metric_tags({key: report[key] for key in _GATED}),
        },
        parent_uri=source.version.uri,
        run_id=run_id,
    )
    return {"run_id": run_id, "bundle_version": version.uri}


_FIGURES = (
    *("latency_ms", "untuned_ms", "tuning_s", "build_s", "trials"),
    *("max_abs_error", "tolerance", "leaked_records"),
)
_GATED = ("latency_ms", "max_abs_error", "tolerance")
