"""Tells whether a process of this machine is still there, across containers and restarts."""

import json
import os
import socket
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


def describe() -> str:
    """This process, for `is_gone` and `is_here`."""
    here = {**_machine(), "pid": os.getpid(), "started": _started(os.getpid())}
    return json.dumps(here, sort_keys=True)


def is_gone(description: str) -> bool:
    """Whether the process described ran on this machine and runs no more.

    False where that cannot be known: another machine, another container, no description.
    """
    return _runs(description) is False


def is_here(description: str) -> bool:
    """Whether the process described runs on this machine now."""
    return _runs(description) is True


def _runs(description: str) -> bool | None:
    """Whether a process still runs; None where that cannot be known."""
    try:
        there = json.loads(description)
        pid, started = int(there.pop("pid")), there.pop("started")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not started or there != _machine() or (now := _started(pid)) is None:
        return None
    return bool(now == started)


def _machine() -> dict[str, str]:
    try:
        boot, namespace = _BOOT.read_text().strip(), str(_NAMESPACE.readlink())
    except OSError:
        boot, namespace = "", ""
    return {"host": socket.gethostname(), "boot": boot, "namespace": namespace}


def _started(pid: int) -> str | None:
    """Start time of a process in clock ticks; empty if there is none, None if it is hidden.

    /proc may show a user only the processes of that user.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if _exists(pid) else ""
    # A zombie holds no lock any more.
    return "" if fields[0] == "Z" else fields[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True
