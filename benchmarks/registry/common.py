"""What the benchmarks of the registry share."""

import argparse
import contextlib
import json
import os
import platform
import shlex
import sys
import tempfile
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")

from mlflow import MlflowClient

from registry.models.mlflow_client import connect
from registry.models.versions import register

Json = Any


def no_gates(version: object, replaced: object, to: str) -> list[Any]:
    """The gates read artifacts and figures; here the lock and the ledger are meant."""
    return []


def parser(
    rounds: int | None = None, stores: tuple[str, ...] = ("sqlite", "postgresql", "server")
) -> argparse.ArgumentParser:
    """What all of the benchmarks may be asked for."""
    made = argparse.ArgumentParser()
    made.add_argument("--on", choices=stores, default="sqlite")
    if rounds is not None:
        made.add_argument("--rounds", type=int, default=rounds)
    return made


@contextlib.contextmanager
def registry_on(store: str) -> Iterator[str]:
    """The URI of a registry: an empty one of its own, or that of the server, as administrator."""
    if store == "sqlite":
        memory = Path("/dev/shm")
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
            yield _migrated(f"sqlite:///{folder}/mlflow.db")
    elif store == "postgresql":
        with _new_database(services()["HETFEAT_TEST_DATABASE"]) as uri:
            yield _migrated(uri)
    else:
        given = services()
        os.environ["MLFLOW_TRACKING_USERNAME"] = given["HETFEAT_TEST_ADMIN"]
        os.environ["MLFLOW_TRACKING_PASSWORD"] = given["HETFEAT_TEST_ADMIN_PASSWORD"]
        yield given["HETFEAT_TEST_SERVER"]


def services() -> dict[str, str]:
    """What `make services` wrote down."""
    path = Path(".services/env")
    if not path.is_file():
        sys.exit("no servers; run `make services` first")
    assignments = (shlex.split(line)[1] for line in path.read_text().splitlines())
    return dict(assignment.split("=", 1) for assignment in assignments)


@contextlib.contextmanager
def _new_database(beside: str) -> Iterator[str]:
    import sqlalchemy as sa

    url = sa.make_url(beside)
    name = f"bench_{uuid.uuid4().hex[:8]}"

    def administer(command: str) -> None:
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text(command))
        engine.dispose()

    administer(f"CREATE DATABASE {name}")
    try:
        yield url.set(database=name).render_as_string(hide_password=False)
    finally:
        administer(f"DROP DATABASE {name} WITH (FORCE)")


def _migrated(uri: str) -> str:
    in_child(lambda: connect(uri).search_registered_models() and None)
    return uri


def make_model(client: MlflowClient, versions: int) -> str:
    """A registered model with versions that have no artifacts."""
    name = f"costmodel.cpu-x86.{uuid.uuid4().hex[:8]}"
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
