"""Real servers for the registry on this machine: PostgreSQL, S3 (OpenStack Swift), MLflow.

    python tools/services start
    python tools/services stop

Needs neither root nor Docker. Everything listens on loopback, on ports that were free. Passwords
are random and stand in `.services/env`, mode 0600, which a shell can source. What the servers keep
lies in a temporary folder and goes with `stop`.
"""

import argparse
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import mlflow_server
import postgres
import swift
from common import STATE, ServiceError, log

BUCKET = "mlflow"


def start() -> None:
    if (STATE / "state.json").exists():
        stop()
    STATE.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="hetfeat-services-"))
    folder.chmod(0o711)  # PostgreSQL may run as another user and must reach its own folder
    state = {"folder": str(folder), "pids": [], "postgres": None}
    _write(state)
    try:
        database = postgres.start(folder / "postgres")
        state["postgres"] = database["control"]
        _write(state)
        storage, pids = swift.start(folder / "swift", STATE / "venv-swift")
        state["pids"] += pids
        _write(state)
        swift.make_bucket(storage, BUCKET)
        server, pid = mlflow_server.start(folder / "mlflow", database, storage, BUCKET)
        state["pids"].append(pid)
        _write(state)
    except BaseException:
        stop()
        raise
    environment = {
        "HETFEAT_TEST_SERVER": server["uri"],
        "HETFEAT_TEST_ADMIN": server["user"],
        "HETFEAT_TEST_ADMIN_PASSWORD": server["password"],
        "HETFEAT_TEST_DATABASE": database["uri"],
        "HETFEAT_TEST_STUDIES": database["study_uri"],
        "MLFLOW_S3_ENDPOINT_URL": storage["endpoint"],
        "AWS_ACCESS_KEY_ID": storage["user"],
        "AWS_SECRET_ACCESS_KEY": storage["password"],
        "AWS_DEFAULT_REGION": swift.REGION,
    }
    path = STATE / "env"
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.writelines(f"export {key}='{value}'\n" for key, value in environment.items())
    source = f". {shlex.quote(str(path))}"
    log(f"ready; `{source}` sets what the tests read, `make services-stop` ends them")


def stop() -> None:
    try:
        state = json.loads((STATE / "state.json").read_text())
    except (OSError, ValueError):
        log("nothing is running")
        return
    for pid in reversed(state["pids"]):
        _end(pid)
    if state["postgres"]:
        postgres.stop(state["postgres"])
    shutil.rmtree(state["folder"], ignore_errors=True)
    for name in ("state.json", "env"):
        (STATE / name).unlink(missing_ok=True)
    log("stopped")


def _end(pid: int) -> None:
    """Ends a process group that `start` made."""
    for number, patience_s in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 1.0)):
        try:
            os.killpg(pid, number)
            deadline = time.monotonic() + patience_s
            while time.monotonic() < deadline:
                os.killpg(pid, 0)
                time.sleep(0.05)
        except ProcessLookupError:
            return


def _write(state: dict) -> None:
    (STATE / "state.json").write_text(json.dumps(state))


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/services")
    parser.add_argument("what", choices=["start", "stop"])
    given = parser.parse_args()
    try:
        start() if given.what == "start" else stop()
    except ServiceError as error:
        log(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
