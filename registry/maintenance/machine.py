"""The machine: compilers, threads, room on the disk and in memory."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hetfeat.devices import host
from hetfeat.devices.probe import home
from registry.maintenance.subprocess_check import Trap, ran

COMPILERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")
"""Compilers that TVM links a library with, unless CXX or CC says otherwise."""


def compiler() -> Iterator[Trap]:
    """A bundle's library is linked by the system's compiler; it is tried on one line of C."""
    named = os.environ.get("CXX") or os.environ.get("CC")
    tried = (named,) if named else COMPILERS
    found = next(filter(shutil.which, tried), None)
    if found is None:
        yield (
            f"no C++ compiler ({', '.join(tried)}): bundles cannot be linked",
            "install g++, or name one in CXX",
        )
    elif trouble := _links(found):
        yield (
            f"{found} does not link a library: {trouble}",
            "install the system's C library for developers (libc6-dev), or name a compiler in CXX",
        )


def cuda() -> Iterator[Trap]:
    """TVM asks nvcc for its version and compiles with it; one that does not start is found late."""
    if shutil.which("nvcc") is None:
        return  # needed for a GPU only: `devices.device` says so
    if ran(["nvcc", "--version"]).returncode:
        yield "nvcc is there and does not start", "install CUDA's toolkit anew, or leave it out"


def threads() -> Iterator[Trap]:
    """TVM alone takes half the cores; hetfeat says how many, unless this overrules a tool."""
    cores = host.usable_cores()
    for variable, does, mend in (
        ("TVM_NUM_THREADS", "TVM's own tools run on as many", "hetfeat sets it from the profile"),
        ("OMP_NUM_THREADS", "training and NumPy run on as many", "it is all cores by itself"),
    ):
        given = os.environ.get(variable)
        if given is not None and given != str(cores):
            yield (
                f"{variable} is {given!r} where {cores} cores may be used: {does}",
                f"unset it: {mend}",
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


def disk(least_bytes: int = 2**30) -> Iterator[Trap]:
    """Room where the toolkit writes: the working folder, its cache, temporary files.

    Args:
        least_bytes: Bytes of free disk that are enough, default 1 GiB: a bundle of ResNet-50 holds
            0.1 GB of weights, and lies in the bundle, the registry and the cache; MLflow's database
            is lost to a full disk first.
    """
    places = {"the working folder": Path.cwd(), "the cache": home()}
    for what, place in {**places, "temporary files": Path(tempfile.gettempdir())}.items():
        there = next(folder for folder in (place, *place.parents) if folder.exists())
        if not os.access(there, os.W_OK):
            yield f"{what} ({there}) cannot be written", "choose a folder of your own"
        elif (free := shutil.disk_usage(there).free) < least_bytes:
            yield (
                f"{free / 2**30:.2f} GiB free for {what} ({there}), less than "
                f"{least_bytes / 2**30:.3g}",
                "remove what is not needed; `hetfeat cache prune --max-gb 0` empties the cache of "
                "what was not used within the hour",
            )


def memory() -> Iterator[Trap]:
    """A child builds on each core, one more runs programs; each may grow until it is replaced."""
    from hetfeat.measure.worker_pool import DEFAULTS

    wanted = (host.usable_cores() + 1) * DEFAULTS.restart_bytes
    free = host.memory_free_bytes()
    if free < wanted:
        yield (
            f"{free / 2**30:.1f} GiB of memory free, where tuning takes up to "
            f"{wanted / 2**30:.1f} on {host.usable_cores()} cores",
            "end other programs, or confine hetfeat to fewer cores with taskset",
        )


def _links(name: str) -> str | None:
    """What a compiler says when it cannot link a shared library, or None."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.c"
        source.write_text("#include <stdlib.h>\nint hetfeat;\n")
        command = [name, "-shared", "-fPIC", "-o", f"{folder}/empty.so", str(source)]
        done = ran(command)
    return (done.stderr.strip().splitlines() or ["it says nothing"])[0] if done.returncode else None
