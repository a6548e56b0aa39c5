"""What the servers share."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

STATE = Path(".services").resolve()
"""In the working folder: virtual environments, kept; state and passwords, gone with `stop`."""


class ServiceError(Exception):
    """A server did not start; the message says why."""


def log(text: str) -> None:
    print(f"services: {text}", file=sys.stderr, flush=True)


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def virtual_environment(folder: Path, requirements: list[str]) -> Path:
    """A virtual environment of its own; returns its Python."""
    python, mark = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join(requirements)
    if python.exists() and mark.exists() and mark.read_text() == wanted:
        return python
    log(f"installing {', '.join(requirements)}")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    quiet = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*quiet, *requirements], capture_output=True, text=True)
    if done.returncode:
        raise ServiceError(f"pip failed: {done.stderr.strip().splitlines()[-1]}")
    mark.write_text(wanted)
    return python


def background(command: list[str], log_file: Path, environment: dict[str, str]) -> int:
    """Starts a process in a group of its own that outlives this one; returns its id."""
    with log_file.open("wb") as output:
        started = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    return started.pid


def wait_for(url: str, log_file: Path, patience_s: float = 120.0) -> None:
    """Waits until a server answers at all."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            opener.open(url, timeout=2).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.2)
    tail = " / ".join(log_file.read_text(errors="replace").splitlines()[-3:])
    raise ServiceError(f"{url} does not answer after {patience_s:.0f} s: {tail}")
