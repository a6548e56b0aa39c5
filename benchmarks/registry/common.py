"""What the benchmarks of the registry share."""

import json
import os
import platform
import sys
import tempfile
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")

from registry.client import connect
from registry.versions import register

Json = Any


def no_gates(version: object, replaced: object, to: str) -> list[Any]:
    """The gates read artifacts and figures; here the lock and the ledger are meant."""
    return []


def fresh_sqlite() -> str:
    """A migrated database of its own, in memory where there is a tmpfs."""
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="registry-", dir=memory if memory.is_dir() else None)
    uri = f"sqlite:///{folder}/mlflow.db"
    in_child(lambda: connect(uri).search_registered_models() and None)
    return uri


def make_model(uri: str, versions: int) -> str:
    """A registered model with versions that have no artifacts."""
    client, name = connect(uri), f"costmodel.cpu-x86.{uuid.uuid4().hex[:8]}"
    for _ in range(versions):
        register(name, "s3://nowhere/model", folder_manifest_sha256="", tags={}, client=client)
    return name


def in_child(work: Callable[[], Json]) -> Json:
    """Runs something in a fork, so that no connection of its outlives it here.

    Raises:
        RuntimeError: It raised.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as pipe:
                json.dump(work(), pipe)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError("the child failed")
    return json.loads(text)


def machine() -> dict[str, str]:
    """Where this is measured."""
    import mlflow

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "?")
    return {
        "cpu": f"{model}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "mlflow": mlflow.__version__,
    }


def quantile(values: list[float], fraction: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(fraction * len(ordered)), len(ordered) - 1)] if ordered else 0.0
