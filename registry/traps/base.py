"""What the checks share: the form of a finding, and a process that may die of what is wrong."""

import os
import subprocess
import sys

CHILD_S = 120.0

Trap = tuple[str, str]
"""What is wrong, and how to mend it."""


def child(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code in a process that imports what this one does."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=CHILD_S,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The signal that ended a process, or the last line of its error."""
    if done.returncode < 0:
        return f"killed by signal {-done.returncode}"
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
