"""Tells whether a process of this machine is still there, across containers and restarts."""

import json
import os
import socket
from pathlib import Path
from typing import Annotated

from pydantic import Field

from hetfeat.errors import DataError
from hetfeat.parsing import Schema, decode

MOST_CHARACTERS = 2000
"""Most characters of a description that is read; a host's name has at most 253."""
_Text = Annotated[str, Field(max_length=300)]
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


class _Process(Schema):
    """A process, as whoever may write a tag of the registry describes it."""

    host: _Text
    boot: _Text
    namespace: _Text
    pid: Annotated[int, Field(ge=1, le=1 << 22)]
    started: Annotated[str, Field(pattern=r"^[0-9]{1,20}$")]


def describe() -> str:
    """This process, for `is_gone` and `is_here`."""
    here = {**_machine(), "pid": os.getpid(), "started": _started(os.getpid())}
    return json.dumps(here, sort_keys=True)


def is_gone(description: object) -> bool:
    """Whether the process described ran on this machine and runs no more.

    False where that cannot be known: another machine, another container, no description.
    """
    return _runs(description) is False


def is_here(description: object) -> bool:
    """Whether the process described runs on this machine now."""
    return _runs(description) is True


def is_described(description: object) -> bool:
    """Whether that is a description of a process, of whatever machine."""
    return _parsed(description) is not None


def _parsed(description: object) -> _Process | None:
    if not isinstance(description, str):
        return None
    try:
        return decode(description, _Process, what="a process", action="", max_bytes=MOST_CHARACTERS)
    except DataError:
        return None


def _runs(description: object) -> bool | None:
    """Whether a process still runs; None where that cannot be known."""
    if (there := _parsed(description)) is None:
        return None
    if there.model_dump(exclude={"pid", "started"}) != _machine():
        return None
    now = _started(there.pid)
    return None if now is None else now == there.started


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
