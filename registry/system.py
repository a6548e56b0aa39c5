"""Facts about the machine and the tools, as tags of a run."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import hetfeat

PACKAGES = ("apache-tvm", "lightgbm", "mlflow", "numpy", "torch", "xgboost")
"""Whose versions a figure may depend on."""


def system_tags() -> dict[str, str]:
    """CPU, threads, versions, and the commit of the project if it runs from a clone."""
    tags = {
        "system.cpu": cpu_name(),
        "system.threads": str(len(os.sched_getaffinity(0))),
        "system.memory_gib": f"{_memory_bytes() / 2**30:.1f}",
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


def cpu_name() -> str:
    """The CPU's own name, or its architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


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


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
