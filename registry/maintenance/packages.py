"""Packages: whether they are of the ranges that were tested, and whether they load."""

import importlib.metadata
from collections.abc import Iterator, Mapping

from packaging.requirements import Requirement

from registry.maintenance.subprocess_check import CheckFinding, child, last_line

PROJECT = "hetfeat"
FFI_WITH_ANOTHER_ABI = (0, 1, 15)
"""First version of apache-tvm-ffi that has another ABI than the TVM that is installed."""
REINSTALL = "run `make env`, or install hetfeat's wheel into an environment of its own"
LOADS = {
    "TVM": "import tvm, tvm.relax, tvm.s_tir",
    "torchvision": "from hetfeat.workloads.networks import load_network as l; l('squeezenet1_1')",
}
"""Name of what must load -> code that loads it as the toolkit does."""


def versions() -> Iterator[CheckFinding]:
    """Packages outside the ranges of pyproject.toml: nothing was tested with them."""
    try:
        requirements = importlib.metadata.requires(PROJECT) or []
    except importlib.metadata.PackageNotFoundError:
        yield f"{PROJECT} runs without being installed: its ranges are not known", REINSTALL
        return
    wrong = []
    for requirement in map(Requirement, requirements):
        found = _installed(requirement.name)
        if found is None and requirement.marker:
            continue  # of an extra that is not installed
        if found is None or not requirement.specifier.contains(found, prereleases=True):
            wanted = f"{requirement.name}{requirement.specifier}"
            wrong.append(f"{requirement.name} {found or 'missing'} instead of {wanted}")
    if wrong:
        yield ", ".join(wrong), REINSTALL


def ffi() -> Iterator[CheckFinding]:
    """Without the bound, pip picks a newer apache-tvm-ffi, with which tuning crashes."""
    found = _installed("apache-tvm-ffi") or ""
    numbers = tuple(int(part) for part in found.split(".")[:3] if part.isdecimal())
    if numbers >= FFI_WITH_ANOTHER_ABI:
        yield (
            f"apache-tvm-ffi {found} has another ABI than TVM: tuning ends in a segmentation fault",
            REINSTALL,
        )


def loads(modules: Mapping[str, str] = LOADS, longest_s: float = 120.0) -> Iterator[CheckFinding]:
    """TVM and torchvision, each in a process of its own, which may die of what is wrong.

    Args:
        modules: Code by the name of what it loads, default `LOADS`.
        longest_s: Seconds after which a process is ended, default 120.
    """
    for name, code in modules.items():
        done = child(code, longest_s=longest_s)
        if done.returncode:
            yield f"{name} does not load: {last_line(done)}", REINSTALL


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
