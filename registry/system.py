"""Facts about the machine and the tools, as tags of a run."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import psutil

import hetfeat
from hetfeat.devices import host

PACKAGES = ("apache-tvm", "lightgbm", "mlflow", "numpy", "torch", "xgboost")
"""Whose versions a figure may depend on."""


def system_tags() -> dict[str, str]:
    """CPU, threads, versions, and the commit of the project if it runs from a clone."""
    tags = {
        "system.cpu": host.cpu_model(),
        "system.threads": str(len(os.sched_getaffinity(0))),
        "system.memory_gib": f"{psutil.virtual_memory().total / 2**30:.1f}",
        "system.platform": platform.platform(),
        "version.python": platform.python_version(),
        "version.hetfeat": hetfeat.__version__,
    }
    for package in PACKAGES:
        try:
            tags[f"version.{package}"] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    if commit := git_commit():
        tags["git_commit"] = commit
    return tags


def pinned(*packages: str) -> list[str]:
    """Requirements of the installed versions, less a local part such as `+cpu`: no index has it."""
    versions = {name: importlib.metadata.version(name) for name in packages}
    return [f"{name}=={version.partition('+')[0]}" for name, version in versions.items()]


def git_commit() -> str | None:
    """Commit of the clone that this package runs from, with `-dirty` if it was changed."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
