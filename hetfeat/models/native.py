"""Files of native parsers, parsed by a child of limited means before this process parses them.

XGBoost and LightGBM read a file without checking all of it: a changed one can end the process,
when it is read or when its trees are followed. What a child found sound is remembered by its
digest, under `HETFEAT_HOME`.
"""

import contextlib
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from hetfeat.devices.probe import home
from hetfeat.errors import DataError

_NATIVE = (".ubj", ".txt")
_CHILD = Path(__file__).with_name("native_child.py")


@dataclass(frozen=True)
class ChildLimits:
    """What a child may take.

    Attributes:
        memory_bytes: Most address space; 8 GB by default.
        cpu_s: Most time of processors, in seconds; 20 by default.
        timeout_s: Longest time, in seconds; 120 by default.
    """

    memory_bytes: int = 8 << 30
    cpu_s: int = 20
    timeout_s: float = 120.0

    def apply(self) -> None:
        """Sets the limits of this process; called in the child, where nothing else is done."""
        resource.setrlimit(resource.RLIMIT_AS, (self.memory_bytes, self.memory_bytes))
        resource.setrlimit(resource.RLIMIT_CPU, (self.cpu_s, self.cpu_s))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def check_native(path: Path, digest: str, limits: ChildLimits = ChildLimits()) -> None:
    """Refuses a booster's file that a child cannot parse, or whose trees are none.

    Args:
        path: Path of a file; one that no native parser reads is passed over.
        digest: SHA-256 of the file's bytes.
        limits: What the child may take; as `ChildLimits` says by default.

    Raises:
        DataError: The child ended badly, or not in time.
    """
    if path.suffix not in _NATIVE or _mark(digest).is_file():
        return
    command = [sys.executable, "-P", str(_CHILD), str(path)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limits.timeout_s,
            preexec_fn=limits.apply,
        )
    except subprocess.TimeoutExpired:
        raise _refused(path, "in no time that is sensible") from None
    if done.returncode:
        raise _refused(path, f"by a child: it ended with {done.returncode}")
    trust(digest)


def trust(digest: str) -> None:
    """Remembers that a file of this digest is sound: a child said so, or this process wrote it.

    Where nothing can be written, the next process asks a child again.
    """
    with contextlib.suppress(OSError):
        _mark(digest).parent.mkdir(parents=True, exist_ok=True)
        _mark(digest).touch()


def _mark(digest: str) -> Path:
    return home() / "trees" / digest


def _refused(path: Path, why: str) -> DataError:
    return DataError(
        f"'{path}', which is not parsed {why}",
        "the trees of a cost model",
        "pull or train the model again",
    )
