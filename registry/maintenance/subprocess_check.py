"""What the checks share: the form of a finding, and a process that may die of what is wrong."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

Trap = tuple[str, str]
"""Description of what is wrong, and the advice how to mend it."""


def child(code: str, *arguments: str, longest_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Runs Python code, for `longest_s` at most, in a process that imports what this one does."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return ran([sys.executable, "-c", code, *arguments], longest_s, environment)


def ran(
    command: Sequence[str],
    longest_s: float = 30.0,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """What a process says; one that does not start or end in time has failed with that error."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=longest_s, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        what = getattr(error, "strerror", None) or type(error).__name__
        return subprocess.CompletedProcess(command, 1, "", what)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The signal that ended a process, or the last line of its error."""
    if done.returncode < 0:
        return f"killed by signal {-done.returncode}"
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
