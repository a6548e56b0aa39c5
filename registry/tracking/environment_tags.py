"""Facts about the machine, the tools and this process, for a run."""

import contextlib
import functools
import importlib.metadata
import math
import os
import platform
import subprocess
from pathlib import Path

import psutil

import hetfeat
from hetfeat.devices import host

PACKAGES = ("apache-tvm", "lightgbm", "mlflow", "numpy", "torch", "xgboost")
"""Packages whose versions a figure may depend on."""


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
            tags[f"version.{package}"] = importlib.metadata.version(_distribution(package))
        except importlib.metadata.PackageNotFoundError:
            continue
    if commit := git_commit():
        tags["git_commit"] = commit
    return tags


def pinned(*packages: str) -> list[str]:
    """Requirements of the installed versions, less a local part such as `+cpu`: no index has it."""
    versions = {name: importlib.metadata.version(name) for name in map(_distribution, packages)}
    return [f"{name}=={version.partition('+')[0]}" for name, version in versions.items()]


def _distribution(package: str) -> str:
    """What is installed as this package: `xgboost-cpu` is XGBoost without NVIDIA's NCCL."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.metadata(f"{package}-cpu")["Name"]
    return package


def peak_memory_bytes() -> float:
    """Most memory that this process has held at once; NaN where the kernel does not say.

    `getrusage` would say the peak of whatever started this process, if that was higher.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) * 1024
    return math.nan


@functools.cache
def git_commit() -> str | None:
    """Commit of the clone that this package runs from, with `-dirty` if it was changed.

    Asked once: a process runs the code that it began with, and git takes long for many runs.
    """
    root = Path(__file__).resolve().parents[2]
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
