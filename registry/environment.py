"""Traps of this machine and its environment: each found by a small function, with a way out."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from hetfeat.devices import host
from hetfeat.devices.probe import remembered
from hetfeat.errors import HetfeatError
from registry.client import connect, translated
from registry.doctor import Finding
from registry.study import holds_studies

PROJECT = "hetfeat"
HERE = "this machine"
FFI_WITH_ANOTHER_ABI = (0, 1, 15)
"""From this version on apache-tvm-ffi has another ABI than the TVM that is pinned."""
COMPILERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")
"""What TVM links a library with, unless CXX or CC says otherwise."""
CHILD_S = 120.0
REINSTALL = "run `make env`, or install hetfeat's wheel into an environment of its own"
_LOADS = "import tvm, tvm.relax, tvm.s_tir"
_MISSING_FEATURES = """
import json, sys
from hetfeat.devices.tvm import code_features
from tvm.target import codegen
here = code_features({"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu()})
print(json.dumps(sorted(set(code_features(json.loads(sys.argv[1]))) - set(here))))
"""

Trap = tuple[str, str]
"""What is wrong, and how to mend it."""


def diagnose_environment() -> list[Finding]:
    """Every trap of `CHECKS` that this machine is in."""
    return [
        Finding(name, HERE, what, action, safe=False)
        for name, check in CHECKS.items()
        for what, action in check()
    ]


def versions() -> Iterator[Trap]:
    """Packages that are not what pyproject.toml pins: nothing was tested with them."""
    try:
        requirements = importlib.metadata.requires(PROJECT) or []
    except importlib.metadata.PackageNotFoundError:
        yield f"{PROJECT} runs without being installed: its pins are not known", REINSTALL
        return
    wrong = []
    for requirement in requirements:
        name, _, pin = requirement.partition("==")
        if ";" in requirement:
            continue  # of an extra
        found = _installed(name)
        # A build of its own has a local part, such as torch 2.13.0+cpu.
        if found is None or found.partition("+")[0] != pin:
            wrong.append(f"{name} {found or 'missing'} instead of {pin}")
    if wrong:
        yield ", ".join(wrong), REINSTALL


def ffi() -> Iterator[Trap]:
    """Without the pin, pip picks a newer apache-tvm-ffi, with which tuning crashes."""
    found = _installed("apache-tvm-ffi") or ""
    numbers = tuple(int(part) for part in found.split(".")[:3] if part.isdecimal())
    if numbers >= FFI_WITH_ANOTHER_ABI:
        yield (
            f"apache-tvm-ffi {found} has another ABI than TVM: tuning ends in a segmentation fault",
            REINSTALL,
        )


def loads() -> Iterator[Trap]:
    """TVM in a process of its own, which may die of what is wrong with it."""
    done = _child(_LOADS)
    if done.returncode:
        yield f"TVM does not load: {_last_line(done)}", REINSTALL


def compiler() -> Iterator[Trap]:
    """A bundle's library is linked by the system's compiler."""
    named = [os.environ[name] for name in ("CXX", "CC") if os.environ.get(name)]
    if not any(shutil.which(name) for name in named or COMPILERS):
        yield (
            f"no C++ compiler ({', '.join(named or COMPILERS)}): bundles cannot be linked",
            "install g++, or name one in CXX",
        )


def threads() -> Iterator[Trap]:
    """TVM alone takes half the cores; hetfeat says how many, unless this overrules a tool."""
    given, cores = os.environ.get("TVM_NUM_THREADS"), host.usable_cores()
    if given is not None and given != str(cores):
        yield (
            f"TVM_NUM_THREADS is {given!r} where {cores} cores may be used",
            "unset it: hetfeat sets it from the device profile",
        )


def binding() -> Iterator[Trap]:
    """TVM's workers take the first CPUs, whatever this process was confined to."""
    allowed = sorted(os.sched_getaffinity(0))
    if allowed != list(range(len(allowed))) and os.environ.get("TVM_BIND_THREADS") != "0":
        yield (
            f"confined to CPUs {','.join(map(str, allowed))}, which TVM leaves: its threads bind "
            "themselves to the first ones",
            "set TVM_BIND_THREADS=0",
        )


def profile() -> Iterator[Trap]:
    """Code for instructions that this CPU does not have ends in an illegal instruction."""
    mend = "run `hetfeat devices probe`"
    try:
        known = remembered()
    except HetfeatError as error:
        yield error.given, mend
        return
    if known is None:
        return
    if known.threads > host.usable_cores():
        yield (
            f"profile {known.name} has {known.threads} threads where "
            f"{host.usable_cores()} cores may be used",
            mend,
        )
    done = _child(_MISSING_FEATURES, json.dumps(known.target))
    if done.returncode:
        yield f"the target of profile {known.name} is not understood: {_last_line(done)}", mend
    elif missing := json.loads(done.stdout):
        yield f"profile {known.name} is of a CPU with {', '.join(missing)}; this one has not", mend


def tracking() -> Iterator[Trap]:
    """MLflow's store answers, and is not Optuna's as well: each migrates the other's tables."""
    import mlflow

    uri = mlflow.get_tracking_uri()
    database = uri.partition(":")[0].partition("+")[0]
    if database == "sqlite" and not Path(uri.partition("///")[2]).is_file():
        return  # made when it is first needed
    try:
        with translated("reach the tracking store"):
            connect().search_registered_models(max_results=1)
            shared = not uri.startswith("http") and holds_studies(uri)
    except HetfeatError as error:
        yield error.given, error.action
        return
    if shared:
        yield (
            "the tracking store holds studies of Optuna: each migrates the other's tables",
            "give `hetfeat hpo` a --storage of its own",
        )


CHECKS: dict[str, Callable[[], Iterator[Trap]]] = {
    "versions": versions,
    "ffi": ffi,
    "loads": loads,
    "compiler": compiler,
    "threads": threads,
    "binding": binding,
    "profile": profile,
    "tracking": tracking,
}
"""By the code that a finding has."""


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _child(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=CHILD_S,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        return f"killed by signal {-done.returncode}"
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
