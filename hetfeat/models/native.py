"""Files of native parsers, parsed by a child of limited means before this process parses them.

XGBoost and LightGBM read a file without checking all of it: a changed one can end the process,
when it is read or when its trees are followed. What a child found sound is remembered by its
digest, under `HETFEAT_HOME`.
"""

import contextlib
import resource
import subprocess
import sys
from pathlib import Path

from hetfeat.devices.probe import home
from hetfeat.errors import DataError

MEMORY_BYTES = 8 << 30
CPU_S = 20
TIMEOUT_S = 120.0
_NATIVE = (".ubj", ".txt")
_CHILD = Path(__file__).with_name("native_child.py")


def check_native(path: Path, digest: str) -> None:
    """Refuses a booster's file that a child cannot parse, or whose trees are none.

    Args:
        path: Path of a file; one that no native parser reads is passed over.
        digest: SHA-256 of the file's bytes.

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
            timeout=TIMEOUT_S,
            preexec_fn=_limit,  # it sets limits and nothing else
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


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _refused(path: Path, why: str) -> DataError:
    return DataError(
        f"'{path}', which is not parsed {why}",
        "the trees of a cost model",
        "pull or train the model again",
    )
