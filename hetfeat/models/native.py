"""Files of native parsers, parsed by a child of limited means before this process parses them.

XGBoost and LightGBM read a file without checking all of it: a changed one can end the process.
What a child has parsed is remembered by its digest, under `HETFEAT_HOME`.
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
_PARSE = {
    ".ubj": "import sys, xgboost as x; b = x.Booster(model_file=sys.argv[1]); b.save_raw('ubj')",
    ".txt": "import sys, lightgbm as l; l.Booster(model_file=sys.argv[1]).model_to_string()",
}


def check_native(path: Path, digest: str) -> None:
    """Refuses a booster's file that does not parse in a child.

    Args:
        path: A file; one that no native parser reads is passed over.
        digest: SHA-256 of its bytes.

    Raises:
        DataError: The child ended badly, or not in time.
    """
    program = _PARSE.get(path.suffix)
    if program is None or _mark(digest).is_file():
        return
    command = [sys.executable, "-P", "-c", program, str(path)]
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
    """Remembers that a file of this digest parses: a child has parsed it, or this process wrote it.

    Where nothing can be written, the next process asks a child again.
    """
    with contextlib.suppress(OSError):
        _mark(digest).parent.mkdir(parents=True, exist_ok=True)
        _mark(digest).touch()


def _mark(digest: str) -> Path:
    return home() / "parsed" / digest


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
