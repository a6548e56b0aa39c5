"""Deployments that nobody made, for what reads them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from hetfeat.deploy.report import DeployReport
from registry.jobs.deploy import Deployment

REPORT = DeployReport(
    network="tiny",
    device="here",
    latency_ms=1.0,
    latency_range_ms=(1.0, 1.0),
    peers_ms={},
    untuned_ms=None,
    batches_ms={},
    tuning_s=0.0,
    build_s=0.0,
    total_s=0.0,
    trials=0,
    failed=0,
    resumed=0,
    interrupted=False,
    stopped=False,
    max_abs_error=0.0,
    tolerance=1.0,
    model_version=None,
    leaked_records=0,
)


def deployment(**figures: Any) -> Deployment:
    """A deployment whose report has these figures."""
    version = "models:/network.tiny.here/1"
    return Deployment(replace(REPORT, **figures), "run", version, Path("bundle"), reused=False)
