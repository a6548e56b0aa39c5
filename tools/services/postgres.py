"""A PostgreSQL of its own: Debian's package, an own data folder, an own port."""

import os
import pwd
import secrets
import shutil
import subprocess
from pathlib import Path

from common import ServiceError, free_ports, log

USER = "hetfeat"
DATABASES = ("mlflow", "mlflow_auth", "optuna")
_UNPRIVILEGED = "nobody"
"""PostgreSQL refuses to run as root."""


def start(folder: Path) -> dict:
    """Starts a server; returns `uri` (of DATABASES[0]), `port`, `password`, `control`."""
    programs = _programs()
    folder.mkdir()
    password = secrets.token_urlsafe(24)
    password_file = folder / "password"
    password_file.touch(mode=0o600)
    password_file.write_text(password)
    if os.geteuid() == 0:
        owner = pwd.getpwnam(_UNPRIVILEGED)
        for path in (folder, password_file):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    data, (port,) = folder / "data", free_ports(1)
    _run(
        [programs / "initdb", "-D", data, "-U", USER, "--pwfile", password_file]
        + ["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"]
    )
    options = (
        f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories='' "
        "-c max_connections=200 "
        # What it holds need outlive a process that is killed, not this machine.
        "-c fsync=off -c full_page_writes=off"
    )
    _run(
        [programs / "pg_ctl", "-D", data, "-l", folder / "log", "-o", options]
        + ["-w", "-t", "60", "start"]
    )
    for database in DATABASES:
        _run(
            [programs / "createdb", "-h", "127.0.0.1", "-p", str(port), "-U", USER, database],
            {"PGPASSWORD": password},
        )
    log(f"PostgreSQL on port {port}")
    return {
        "uri": f"postgresql+psycopg2://{USER}:{password}@127.0.0.1:{port}/{DATABASES[0]}",
        "auth_uri": f"postgresql+psycopg2://{USER}:{password}@127.0.0.1:{port}/{DATABASES[1]}",
        "study_uri": f"postgresql+psycopg2://{USER}:{password}@127.0.0.1:{port}/{DATABASES[2]}",
        "port": port,
        "control": [str(programs / "pg_ctl"), "-D", str(data)],
    }


def stop(control: list[str]) -> None:
    """Stops the server that `start` called `control`."""
    _run([*control, "-m", "immediate", "-w", "stop"], check=False)


def _programs() -> Path:
    """The folder of initdb and pg_ctl, which Debian keeps off the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name)
    on_path = shutil.which("pg_ctl")
    folders = [Path(on_path).resolve().parent] if on_path else found[-1:]
    if not folders or not (folders[0] / "initdb").exists():
        raise ServiceError("PostgreSQL is not installed; install the package `postgresql`")
    return folders[0]


def _run(command: list, environment: dict[str, str] | None = None, check: bool = True) -> None:
    words = [str(word) for word in command]
    if os.geteuid() == 0:
        owner = pwd.getpwnam(_UNPRIVILEGED)
        ids = [f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
        words = ["setpriv", *ids, *words]
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env={**os.environ, **(environment or {})},
    )
    if check and done.returncode:
        raise ServiceError(f"{Path(str(command[0])).name} failed: {done.stderr.strip()}")
