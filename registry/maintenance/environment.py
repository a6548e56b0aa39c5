"""Traps of this machine and its environment: each found by a small function, with a way out."""

from collections.abc import Callable, Iterator, Sequence

from registry.maintenance import devices, machine, packages, tracking_store
from registry.maintenance.audit import Finding
from registry.maintenance.subprocess_check import CheckFinding

HERE = "this machine"

CHECKS: dict[str, Callable[[], Iterator[CheckFinding]]] = {
    "versions": packages.versions,
    "ffi": packages.ffi,
    "loads": packages.loads,
    "compiler": machine.compiler,
    "cuda": machine.cuda,
    "threads": machine.threads,
    "binding": machine.binding,
    "disk": machine.disk,
    "memory": machine.memory,
    "profile": devices.profile,
    "tracking": tracking_store.tracking,
    "variables": tracking_store.variables,
    "project": tracking_store.project,
}
"""Checks by the code that a finding has; that of a device that was named is `device`."""


def diagnose_environment(named: Sequence[str] = ()) -> list[Finding]:
    """Every trap of `CHECKS` that this machine is in, and what is wrong with devices.

    Args:
        named: Devices to examine as well, as for `--device`; default none.
    """
    found = [
        Finding(code, HERE, what, action, safe=False)
        for code, check in CHECKS.items()
        for what, action in check()
    ]
    return found + [
        Finding("device", name, what, action, safe=False)
        for name in named
        for what, action in devices.device(name)
    ]
