"""What the run of a deployment shows: metrics, figures and a table of its tasks."""

from collections.abc import Mapping
from typing import Any

from hetfeat.deploy.report import DeployReport
from hetfeat.devices.profile import DeviceProfile
from hetfeat.report.deployed import bars_of, of_fastest_peer, over_time, task_table
from registry.tracking import command_run
from registry.tracking.live import Curve

INTERRUPTED_TAG = "interrupted"
"""Tag of the run of a deployment that had not spent its budget: no report counts it."""


def log_deployment(
    report: DeployReport, manifest: Mapping[str, Any], profile: DeviceProfile, curve: Curve
) -> None:
    """Logs a deployment into the active run.

    Args:
        report: Report of the deployment.
        manifest: Manifest of its bundle.
        profile: Profile of its device.
        curve: Figures that came while it was tuned.
    """
    import mlflow

    figures = {
        "latency_ms": report.latency_ms,
        "of_fastest_peer": of_fastest_peer(report),
        "max_abs_error": report.max_abs_error,
        "tolerance": report.tolerance,
        "untuned_ms": report.untuned_ms,
        "picked_ms": report.picked_ms,
        "tuning_s": report.tuning_s,
        "build_s": report.build_s,
        "trials": report.trials,
        "leaked_records": report.leaked_records,
        **{f"{peer}_ms": value for peer, value in report.peers_ms.items()},
        **{f"batch_{batch}_ms": value for batch, value in report.batches_ms.items()},
        **(report.accuracy.figures() if report.accuracy else {}),
    }
    mlflow.log_metrics({key: float(v) for key, v in figures.items() if v is not None})
    command_run.log_deciding({key: figures[key] for key in ("latency_ms", "of_fastest_peer")})
    if report.interrupted:
        mlflow.set_tag(INTERRUPTED_TAG, "true")
    mlflow.log_figure(bars_of(report), "figures/latency.png")
    if (figure := over_time(curve.points, report)) is not None:
        mlflow.log_figure(figure, "figures/latency_over_time.png")
    if table := task_table(manifest.get("tasks", []), profile):
        command_run.log_table(table, "tables/tasks.json")
