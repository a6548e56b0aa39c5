"""What `make quickstart` runs: train, promote, deploy ResNet-18, and show what came of it.

Nothing is done twice: a version trained on the packaged data set is used as it is, and so is a
bundle made with it.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetfeat.errors import HetfeatError, WorkFailed
from registry.tracking.command_run import EXPERIMENT

if TYPE_CHECKING:
    from registry.jobs.deploy import Deployment

NETWORK = "resnet18"
OUT = Path(".quickstart") / NETWORK
UI = "mlflow ui --backend-store-uri sqlite:///mlflow.db"


def main() -> int:
    """Runs every step; returns the exit code."""
    from hetfeat.devices.probe import local_profile

    os.environ.setdefault("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    _say("1/4  this machine; the first time all takes some seven minutes")
    profile = local_profile()
    _say(f"     {profile.name}: {profile.threads} threads, {profile.peak_gflops:.0f} GFLOP/s")
    _say("2/4  a cost model: mlflow run . -e train")
    version = _trained_version() or _train()
    _say(f"3/4  {version.uri} to staging and production")
    _promote(version)
    _say(f"4/4  {NETWORK} for this machine, tuned with it; some five minutes the first time")
    _say(_table(version, _deploy(version)))
    return 0


def _trained_version() -> Any | None:
    """The version trained on the packaged data set of now that is in production, or the newest."""
    from hetfeat.dataset.packaged import packaged_store
    from hetfeat.dataset.store import RecordStore
    from hetfeat.features.columns import FEATURES_VERSION
    from registry.models.mlflow_client import condition, connect, translated
    from registry.models.version import DATASET_TAG, FEATURES_TAG, Version
    from registry.models.versions import search_versions

    digest = RecordStore.open(packaged_store()).digest()
    with translated("look up cost models"):
        known = [*search_versions(connect(), condition(f"tags.{DATASET_TAG}", digest))]
    found = [Version.of(v) for v in known if v.tags.get(FEATURES_TAG) == str(FEATURES_VERSION)]
    trained = [v for v in found if v.name.startswith("costmodel.") and v.stage != "archived"]
    return max(trained, key=lambda v: (v.stage == "production", v.version), default=None)


def _train() -> Any:
    command = [sys.executable, "-m", "mlflow", "run", ".", "-e", "train"]
    # In one experiment with the deployments, where they can be compared.
    environment = os.environ | {"MLFLOW_EXPERIMENT_NAME": EXPERIMENT}
    done = subprocess.run(command, env=environment, check=False)
    version = _trained_version()
    if done.returncode or version is None:
        raise WorkFailed(
            f"`mlflow run . -e train`, which exited with {done.returncode}",
            "a registered version",
            "read its output above; `make env` sets up what it needs",
        )
    return version


def _promote(version: Any) -> None:
    from registry.files.moves import promote

    if version.stage == "production":
        return
    for stage in ("staging", "production"):
        if version.stage != stage:
            promote(version.name, version.version, stage, reason="quickstart")


def _deploy(version: Any) -> "Deployment":
    from registry.jobs.deploy import DeployJob, deploy_and_register

    job = DeployJob(NETWORK, OUT, model=version.name, stage="production", minutes=2.5)
    return deploy_and_register(job)


def _table(version: Any, deployment: "Deployment") -> str:
    from registry.cli import output
    from registry.models.version import figure_of

    report = deployment.report
    of_model = {name: figure_of(version, name) for name in ("pca", "rmse", "r2", "top1", "top5")}
    figures = [f"{name} {value:.3f}" for name, value in of_model.items() if value is not None]
    latencies = {
        "untuned": report.untuned_ms,
        "picked, nothing measured": report.picked_ms,
        "tuned": report.latency_ms,
        "ONNX Runtime": report.peers_ms["onnxruntime"],
        "OpenVINO": report.peers_ms["openvino"],
        "torch": report.peers_ms["torch"],
    }
    rows = [
        ["cost model", version.uri],
        ["its figures", ", ".join(figures)],
        *[[f"{name}, ms", f"{ms:.2f}" if ms else "not run"] for name, ms in latencies.items()],
        ["max abs error", f"{report.max_abs_error:.2g} ({report.tolerance:.2g} allowed)"],
        ["programs measured", f"{report.trials} in {report.tuning_s:.0f} s"],
        ["bundle", str(deployment.bundle)],
    ]
    return "\n".join(["", output.columns(rows), "", f"compare runs: .venv/bin/{UI}"])


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    from registry.cli import logs

    logs.log_to_stderr()
    try:
        sys.exit(main())
    except HetfeatError as error:
        sys.stderr.write(f"hetfeat: {error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("hetfeat: interrupted; what was done is kept, run it again to go on\n")
        sys.exit(130)
